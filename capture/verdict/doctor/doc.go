// Package doctor says what a machine needs for recording, what it lacks, and which command changes that. The
// same words explain a recording that failed (Explain). It keeps nothing.
//
// What can be tried is tried: a command, a process and the whole machine are recorded for a short time
// each, and the processes that run are looked into, since security modules and container run-times refuse
// what the settings allow. What explains a refusal is read from /proc/sys/kernel
// (Documentation/admin-guide/sysctl/kernel.rst) and /proc/self/status.
package doctor
