// Package export writes a recording in the format of another tool: it loads the recording into a profile,
// with names, and hands that to the format's own package.
package export
