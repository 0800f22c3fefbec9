// Package doctor says what a machine needs for recording, what it lacks, and which command changes that. The
// same words explain a recording that failed (Explain). It keeps nothing.
//
// Most of it is read from /proc/sys/kernel (Documentation/admin-guide/sysctl/kernel.rst) and
// /proc/self/status; whether events can be opened is found out by opening some, since security
// modules and container run-times refuse what the settings allow.
package doctor
