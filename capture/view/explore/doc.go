// Package explore serves a profile in pprof's own web interface: flame graph, graph (which needs Graphviz),
// top, source, disassembly.
//
// Only who has started the program is served: on this machine, and by a URL with a random token, which a cookie
// replaces after the first request. The caller prints the URL; no browser is opened, as its command line would show
// the token to every user. Pages of other sites get no answer, whatever name they use for this machine.
//
// The profiled program decides which files its debugging information names. So who is served sees files that they may
// read anyway, as Options.Drop gives up root's privileges before pages are made, and only regular ones within limits
// (see sources.go). pprof's settings are read, but not written.
//
// Serve reads the caller's profile until it returns, and keeps nothing of it afterwards.
package explore
