package packages

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	bookworm = "ID=debian\nVERSION_CODENAME=bookworm\n"
	noble    = "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n"
	modern   = `# the release
Types: deb deb-src
# a snapshot
URIs: https://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://mirror.test/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`
	unknown = "apt does not know g++-12-dbgsym before its sources have Debian's archive of debug symbols: "
	byHand  = unknown + "debian-debug, suite bookworm-debug, then `apt update && apt install g++-12-dbgsym`"
	add     = unknown + "`echo '%s' > /etc/apt/sources.list.d/debug.list && apt update && apt install g++-12-dbgsym`"
)

// TestDebugArchive has machines with different sources.
func TestDebugArchive(t *testing.T) {
	lists := map[string]string{"g++-12.list": "/.\n/usr/bin/g++-12\n", "libc6:amd64.list": "/.\n/lib/libc.so.6\n"}
	compiler, libc := []File{{Path: "/usr/bin/g++-12"}}, []File{{Path: "/usr/lib/libc.so.6"}}
	const debugSource = "deb http://mirror.test/debian-debug bookworm-debug main\n"
	const debugList = "/var/lib/apt/lists/mirror.test_debian-debug_dists_bookworm-debug_main_binary-amd64_Packages"
	for name, c := range map[string]struct {
		release string
		files   []File
		system  map[string]string // files
		want    string
	}{
		"one line": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list": "#deb http://no.test/debian bookworm main\ndeb-src http://src.test/debian bookworm main\n" +
				"deb http://security.test/debian-security bookworm-security main\n" +
				"deb http://mirror.test/debian/ bookworm main contrib # ours\n",
		}, fmt.Sprintf(add, "deb http://mirror.test/debian-debug bookworm-debug main")},
		"one line, with a key": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list.d/d.list": "deb [arch=amd64 signed-by=/usr/share/keyrings/d.gpg] " +
				"http://mirror.test/debian bookworm main\n",
		}, fmt.Sprintf(add, "deb [signed-by=/usr/share/keyrings/d.gpg] http://mirror.test/debian-debug bookworm-debug main")},
		"stanzas": {bookworm, compiler, map[string]string{"/etc/apt/sources.list.d/debian.sources": modern},
			fmt.Sprintf(add, "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "+
				"https://mirror.test/debian-debug bookworm-debug main")},
		"a list of mirrors": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list.d/debian.sources": strings.ReplaceAll(modern, "https://mirror.test/debian\n",
				"mirror+file:///etc/apt/mirrors/debian.list\n"),
			"/etc/apt/mirrors/debian.list": "# ours\nhttps://cloud.test/debian\n",
		}, fmt.Sprintf(add, "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "+
			"https://cloud.test/debian-debug bookworm-debug main")},
		"a proxy and a snapshot": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list": "deb http://proxy:3142/snapshot.test/archive/debian/20250520T000000Z bookworm main\n",
		}, fmt.Sprintf(add, "deb http://proxy:3142/snapshot.test/archive/debian-debug/20250520T000000Z bookworm-debug main")},
		"another release beside it": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list": "deb http://mirror.test/debian sid main\ndeb http://mirror.test/debian bookworm main\n",
		}, fmt.Sprintf(add, "deb http://mirror.test/debian-debug bookworm-debug main")},
		"no sources": {bookworm, compiler, nil, byHand},
		"a password": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list": "deb http://me:secret@mirror.test/debian bookworm main\n"}, byHand},
		"a command": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list": "deb http://mirror.test/debian/'$(reboot)' bookworm main\n"}, byHand},
		"a key in it": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list.d/d.sources": "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm\n" +
				"Components: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"}, byHand},
		"only the libc": {bookworm, libc, map[string]string{
			"/etc/apt/sources.list.d/debian.sources":                                              modern,
			"/var/lib/apt/lists/mirror.test_debian_dists_bookworm_main_binary-amd64_Packages.lz4": "",
		}, "`apt install libc6-dbg`"},
		"nothing fetched": {bookworm, libc, nil, "`apt update && apt install libc6-dbg`"},
		"switched off": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list.d/debug.sources": "Enabled: no\nTypes: deb\n" +
				"URIs: http://mirror.test/debian-debug\nSuites: bookworm-debug\nComponents: main\n",
		}, unknown + "enable it in /etc/apt/sources.list.d/debug.sources, then `apt update && apt install g++-12-dbgsym`"},
		"known": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list": debugSource, debugList: "Package: g++-12-dbgsym\nVersion: 12\n\nPackage: x-dbgsym\n",
		}, "`apt install g++-12-dbgsym`"},
		"known compressed": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list": debugSource, debugList + ".lz4": "\x04"}, "`apt install g++-12-dbgsym`"},
		"not there": {bookworm, compiler, map[string]string{
			"/etc/apt/sources.list": debugSource, debugList: "Package: g++-12-dbgsyms\n\nPackage: x-dbgsym\n"}, ""},
		"Ubuntu": {noble, compiler, map[string]string{"/etc/apt/sources.list": "deb http://archive.test/ubuntu noble main\n"},
			"apt does not know g++-12-dbgsym before its sources have Ubuntu's archive of debug symbols: ddebs, whose key " +
				"`apt install ubuntu-dbgsym-keyring` installs, then `apt update && apt install g++-12-dbgsym`"},
		"Ubuntu with ddebs": {noble, compiler, map[string]string{
			"/etc/apt/sources.list": "deb http://ddebs.archive.test noble main\n",
			"/var/lib/apt/lists/ddebs.archive.test_dists_noble_main_binary-amd64_Packages.lz4": "",
		}, "`apt install g++-12-dbgsym`"},
	} {
		t.Run(name, func(t *testing.T) {
			s := system(t, c.release, lists)
			for path, text := range c.system {
				s.put(t, path, text)
			}
			if got := s.Install(c.files); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

// TestHostileSources has files that are not what they should be.
func TestHostileSources(t *testing.T) {
	s := system(t, bookworm, map[string]string{"g++-12.list": "/.\n/usr/bin/g++-12\n"})
	s.put(t, "/etc/apt/sources.list", strings.Repeat("deb x ", 1<<18))
	s.put(t, "/etc/apt/sources.list.d/many.sources", "Types: deb\nURIs:"+strings.Repeat(" u", 1<<17)+"\nSuites:"+
		strings.Repeat(" s", 1<<17)+"\n")
	s.put(t, "/etc/apt/sources.list.d/x.sources/x", "")
	if err := unix.Mkfifo(s.Root+"/etc/apt/sources.list.d/fifo.list", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(s.Root+"/etc/os-release", 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	go func() { done <- s.Install([]File{{Path: "/usr/bin/g++-12"}}) }()
	select {
	case got := <-done:
		if !strings.Contains(got, "apt install g++-12-dbgsym") {
			t.Error(got)
		}
	case <-time.After(time.Minute):
		t.Fatal("it hangs")
	}
}

func TestAlpine(t *testing.T) {
	const installed = `C:Q1abc=
P:musl
V:1.2.5-r0
o:musl
F:lib
R:ld-musl-x86_64.so.1
a:0:0:755
Z:Q1x=

P:libssl3
V:3.3
o:openssl
F:usr/lib
R:libssl.so.3

P:own
F:usr/bin
R:own;reboot
R:evil

`
	s := system(t, "ID=alpine\n", nil)
	s.put(t, "/lib/apk/db/installed", installed)
	got := s.Install([]File{{Path: "/lib/ld-musl-x86_64.so.1"}, {Path: "/usr/lib/libssl.so.3"}, {Path: "/usr/bin/none"},
		{Path: "/lib/libssl.so.3"}})
	if got != "`apk add -U musl-dbg openssl-dbg`" {
		t.Error(got)
	}
	if got := s.Install([]File{{Path: "/usr/bin/none"}}); got != "" {
		t.Error(got)
	}
}

func TestServers(t *testing.T) {
	s := system(t, "ID=arch\n", nil)
	if got := s.Servers(); got != "" {
		t.Error(got)
	}
	s.put(t, "/etc/debuginfod/arch.urls", "https://debuginfod.arch.test\n")
	if got := s.Servers(); got != "https://debuginfod.arch.test" {
		t.Error(got)
	}
	s.put(t, "/etc/debuginfod/other.urls", "ima:enforcing https://other.test:8002/buildid ima:ignore 'https://x;reboot'\n")
	s.put(t, "/etc/debuginfod/readme", "https://no.test")
	if got := s.Servers(); got != "https://debuginfod.arch.test https://other.test:8002/buildid" {
		t.Error(got)
	}
}
