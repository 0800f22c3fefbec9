// Package debuginfod fetches executables and debug files by build ID from debuginfod servers, and keeps
// them in the cache of elfutils' client, so that each of the two finds the files that the other has
// fetched. It follows debuginfod-client-config(7) and debuginfod_find_debuginfo(3), with these differences.
//
// A file is checked before it goes to the cache: if it has another build ID, or none, it is refused, and the
// other servers are asked. The same Client does not ask a server again that could not be reached or did not
// answer in time, so that a recording with a hundred images waits for it once. The cache notes that a file is
// not found only if all servers have said so.
//
// No server is asked, and the cache is not touched, unless the caller makes a Client; Environment says
// whether the user wants one. The caller owns and closes the files that a Client opens.
package debuginfod
