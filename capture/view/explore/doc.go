// Package explore serves a profile in pprof's own web interface: flame graph, graph (which needs Graphviz),
// top, source, disassembly.
//
// Only this machine is served, unless the address says otherwise, and only users who know the URL: it has a
// random token, which a cookie replaces after the first request. The caller prints the URL; no browser is
// opened, as its command line would show the token to every user. Pages of other sites get no answer,
// whatever name they use for this machine.
//
// The profiled program decides which files its debugging information names. Source and machine code are only
// shown from regular files that the owner of the program may read, and from copies of these (see sources.go).
// Options.Drop gives up root's privileges before pages are made. pprof's settings are read, but not written.
//
// Serve reads the caller's profile until it returns, and keeps nothing of it afterwards.
package explore
