// Package export writes a recording in the format of another tool: it loads the recording into a profile with
// names, and passes that to the package of the format, whose doc.go names the specification. It keeps nothing
// after a call.
package export
