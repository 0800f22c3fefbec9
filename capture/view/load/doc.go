// Package load reads a recording into a profile. Raw stacks are unwound first, into a temporary recording
// with callchains, which [Unwound.Close] removes. The profile belongs to the caller. The format of recordings
// is described in package perfdata.
package load
