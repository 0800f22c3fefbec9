// Package packages says how the distribution's packages with debug symbols of files are installed. It reads
// what the package manager has written and runs no program, so that a confined process can ask it.
package packages
