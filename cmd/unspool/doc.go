// Command unspool records profiles of programs that were built without frame
// pointers, with full user stacks, and reports where their time goes.
package main
