// Package packages says which packages of the distribution files are of, and how those with their debug symbols are
// installed. It reads what the package manager has written, so that a confined process can ask it; only rpm's database
// takes a program.
package packages
