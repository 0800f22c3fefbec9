// Package explore serves a profile in pprof's own web interface: flame graph, graph (which needs Graphviz),
// top, source, disassembly.
//
// Nobody but this machine is served unless the address says otherwise, and of its users those who know the
// URL: it has a random token, which a cookie takes the place of. The URL is handed to the caller to be
// printed; no browser is opened, as its command line would show the token to every user. A page of another
// site gets nothing, by whatever name it reaches us.
//
// The profiled program decides which files its debugging information names. Source and machine code are shown
// of regular files that the owner of the program may read, by copies that were made of them (see sources.go),
// and Options.Drop takes root's rights from what makes the pages. pprof's settings are read, but not written.
package explore
