// Command sysprof records by Sysprof, with the helper that Sysprof comes with and with unspool in its place,
// and compares what they kept and what it cost. It makes roots of the Debian releases that have Sysprof 48
// and 51, and runs dbus-daemon, polkitd, sysprofd and sysprof-cli in them.
//
// It ends with status 2 if a root cannot be had, and with 1 if unspool did worse than it must.
package main
