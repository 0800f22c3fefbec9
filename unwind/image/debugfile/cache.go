package debugfile

import (
	"encoding/hex"
	"os"
	"path/filepath"
)

// Cached gives the places of a build in perf's build-ID cache, usually ~/.debug:
// a link to a directory with the file in it ("elf", "debug", "vdso", "kallsyms"),
// or, up to perf 4.8, to the file (build_id_cache__linkname and
// dso__build_id_filename in tools/perf/util/build-id.c).
func Cached(cache string, buildID []byte, name string) []string {
	digits := hex.EncodeToString(buildID)
	if cache == "" || len(digits) < 4 {
		return nil
	}
	link := filepath.Join(cache, ".build-id", digits[:2], digits[2:])
	return []string{filepath.Join(link, name), link}
}

// Cache is where perf's build-ID cache is by default (perf-config, "buildid.dir"); "" if that is not known.
func Cache() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".debug")
}
