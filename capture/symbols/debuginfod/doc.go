// Package debuginfod fetches executables and debug files by build ID from debuginfod servers, and keeps them
// in the cache that elfutils' client keeps: what one of the two has fetched the other one finds. It follows
// debuginfod-client-config(7) and debuginfod_find_debuginfo(3), with these differences.
//
// What a server sends is looked at before it goes to the cache: a file that has another build ID, or none, is
// refused, and the other servers are asked. A server that cannot be reached, or that lets its time pass, is
// not asked again by the same Client, so that a recording of a hundred images waits for it once. That a file
// is nowhere goes to the cache only when every server has said so.
//
// Nothing is asked, and the cache is left alone, unless the caller makes a Client; Environment says whether
// the user wants one.
package debuginfod
