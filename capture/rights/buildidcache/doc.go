// Package buildidcache puts files into perf's build-ID cache when a recording ends, as perf record does, so that their
// names are there when the files are not: those of another root (a chroot, a container), that were removed or replaced,
// or in memory only. perf finds them there, and so does whatever else reads perf.data.
//
//	~/.debug/.build-id/xx/yyyy -> ../../PATH/BUILDID    a directory, with the file in it by the name "elf"
//
// A process that records with raised rights must not copy what its user may not read. So a process of its own does it,
// with the rights of that user: [Start] has to be called before the recording gives up its rights, and [Client.Add]
// hands it open files. It decides which of them are gone ([isHere]) and which the user could read without the
// recording's help ([mayRead]). Then it gives up everything but writing to the cache, and only after that reads what is
// in them.
//
// [perf]: build_id_cache__add in tools/perf/util/build-id.c
package buildidcache
