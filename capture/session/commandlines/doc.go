// Package commandlines reads the command lines of programs that are executed or sampled, for a recording. What looks
// like a secret in them is masked before it leaves the package.
package commandlines
