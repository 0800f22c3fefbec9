package debuginfod

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"unspool/testdata/lane"
)

// elfFile is an ELF file that has a build ID and nothing else.
func elfFile(id []byte) []byte {
	le := binary.LittleEndian
	const header, entry = 64, 56
	b, _ := binary.Append(nil, le,
		elf.Header64{Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: 3, Machine: 62, Version: 1,
			Phoff: header, Ehsize: header, Phentsize: entry, Phnum: 1})
	size := uint64(16 + len(id))
	b, _ = binary.Append(b, le, elf.Prog64{Type: uint32(elf.PT_NOTE), Flags: 4, Off: header + entry,
		Filesz: size, Memsz: size, Align: 4})
	b, _ = binary.Append(b, le, []uint32{4, uint32(len(id)), 3})
	return append(append(b, "GNU\x00"...), id...)
}

var (
	buildID = []byte("\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x00\x11\x22\x33")
	another = []byte("\xff\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x00\x11\x22\x33")
	content = elfFile(buildID)
	key     = request{fmt.Sprintf("%x", buildID), Debuginfo}
	path    = "/buildid/" + key.id + "/debuginfo"
)

var modified = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)

// good is a server that has the debug file of buildID and nothing else.
func good(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != path {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Last-Modified", modified.Format(http.TimeFormat))
	_, _ = w.Write(content)
}

// serve runs a server and counts its requests.
func serve(t *testing.T, handler http.HandlerFunc) (url string, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	gone := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		ctx, cancel := context.WithCancel(r.Context())
		go func() { <-gone; cancel() }()
		handler(w, r.WithContext(ctx))
	}))
	t.Cleanup(func() { close(gone); s.CloseClientConnections(); s.Close() })
	return s.URL, asked
}

// unreachable is the URL of no server. Its port is taken as long as the test runs, so that none gets it meanwhile.
func unreachable(t *testing.T) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
}

func client(cache string, servers ...string) *Client {
	return New(context.Background(), Options{Servers: servers, Cache: cache, Timeout: time.Minute})
}

func fetched(t *testing.T, c *Client) {
	t.Helper()
	file, err := c.Find(buildID, Debuginfo)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if b, err := io.ReadAll(file); err != nil || !bytes.Equal(b, content) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// leftovers lists the files in a cache without its control files.
func leftovers(t *testing.T, folder string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(folder, path); name != "." && !strings.HasSuffix(name, "_s") {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestFilesAreFetchedOnce(t *testing.T) {
	began := time.Now()
	url, asked := serve(t, good)
	cache := filepath.Join(t.TempDir(), "below", "cache")
	c := client(cache, url+"/")
	fetched(t, c)
	fetched(t, c)
	fetched(t, client(cache, unreachable(t)))
	if n := asked.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	for path, want := range map[string]fs.FileMode{"": 0o700, key.id: 0o700, key.id + "/debuginfo": 0o400} {
		if info, err := os.Stat(filepath.Join(cache, path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	info, err := os.Stat(filepath.Join(cache, key.id, "debuginfo"))
	if err != nil || !info.ModTime().Equal(modified) {
		t.Errorf("modified %v, %v", info.ModTime(), err)
	}
	if used := time.Unix(info.Sys().(*syscall.Stat_t).Atim.Unix()); used.Before(began.Add(-time.Second)) {
		t.Errorf("last used %v", used)
	}
}

func TestFilesOfAFileSystem(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, path), content)
	fetched(t, client(t.TempDir(), "file://"+folder))
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
		os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// find runs elfutils' client. The error is nil when it succeeded.
func find(t *testing.T, cache, url, id string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("debuginfod-find")
	if err != nil {
		t.Skip("debuginfod-find is missing")
	}
	cmd := exec.Command(program, "debuginfo", id)
	cmd.Env = []string{"HOME=/nonexistent", "DEBUGINFOD_URLS=" + url, "DEBUGINFOD_CACHE_PATH=" + cache}
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

func TestCacheIsSharedWithElfutils(t *testing.T) {
	missing := fmt.Sprintf("%x", another)
	t.Run("its files", func(t *testing.T) {
		url, _ := serve(t, good)
		cache := t.TempDir()
		if _, err := find(t, cache, url, key.id); err != nil {
			t.Fatal(err)
		}
		fetched(t, client(cache, unreachable(t)))
	})
	t.Run("our files", func(t *testing.T) {
		url, _ := serve(t, good)
		cache := t.TempDir()
		fetched(t, client(cache, url))
		path, err := find(t, cache, unreachable(t), key.id)
		if err != nil || path != filepath.Join(cache, key.id, "debuginfo") {
			t.Errorf("%s, %v", path, err)
		}
	})
	t.Run("what it has not found", func(t *testing.T) {
		url, asked := serve(t, good)
		cache := t.TempDir()
		if _, err := find(t, cache, url, missing); err == nil || asked.Load() == 0 {
			t.Fatalf("asked %d times, %v", asked.Load(), err)
		}
		asked.Store(0)
		if _, err := client(cache, url).Find(another, Debuginfo); !errors.Is(err, ErrNotFound) ||
			asked.Load() != 0 {
			t.Errorf("asked %d times, %v", asked.Load(), err)
		}
	})
	t.Run("what we have not found", func(t *testing.T) {
		url, asked := serve(t, good)
		cache := t.TempDir()
		if _, err := client(cache, url).Find(another, Debuginfo); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		asked.Store(0)
		if _, err := find(t, cache, url, missing); err == nil || asked.Load() != 0 {
			t.Errorf("asked %d times, %v", asked.Load(), err)
		}
	})
}

func TestWhatNoServerHas(t *testing.T) {
	url, asked := serve(t, good)
	cache := t.TempDir()
	ask := func(c *Client, want int32) {
		t.Helper()
		asked.Store(0)
		if _, err := c.Find(another, Executable); !errors.Is(err, ErrNotFound) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v", err)
		}
		if n := asked.Load(); n != want {
			t.Errorf("%d requests, want %d", n, want)
		}
	}
	ask(client(cache, url), 1)
	ask(client(cache, url), 0)
	miss := filepath.Join(cache, fmt.Sprintf("%x", another), "executable")
	if err := os.Chmod(miss, 0); err != nil { // as before elfutils 0.186
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // others do not see whether it is empty, and ask again
		ask(client(cache, url), 0)
	}
	hour := time.Now().Add(-time.Hour)
	if err := os.Chtimes(miss, hour, hour); err != nil {
		t.Fatal(err)
	}
	c := client(cache, url)
	ask(c, 1)
	write(t, filepath.Join(cache, missLifetime), []byte("0"))
	ask(c, 0) // this time the Client remembers it
	ask(client(cache, url), 1)
	// A server that cannot be reached may have it.
	if err := os.RemoveAll(filepath.Dir(miss)); err != nil {
		t.Fatal(err)
	}
	if _, err := client(cache, url, unreachable(t)).Find(another, Executable); errors.Is(err, ErrNotFound) {
		t.Errorf("error %v", err)
	}
	if left := leftovers(t, cache); len(left) != 0 {
		t.Errorf("left in the cache: %q", left)
	}
}

// hang sends what was written so far and waits until the client gives up.
func hang(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func TestBadServers(t *testing.T) {
	packed := gzipped(make([]byte, 4<<20))
	for _, c := range []struct {
		name     string
		handler  http.HandlerFunc // nil for a server that is not there
		requests int32            // for one file, then for another one, too
		all      int32
		words    string
	}{
		{"not there", nil, 0, 0, "connection refused"},
		{"silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 1, 1, "too slow"},
		{"silent after the header", hang, 1, 1, "too slow"},
		{"silent in between", func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(content[:100])
			hang(w, r)
		}, 1, 1, "too slow"},
		{"slow", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 100))
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, 1, 1, "too slow"},
		{"garbage", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<html>Please log in")
		}, 1, 2, key.id + "/debuginfo: not used: "},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 1, 2, key.id + "/debuginfo: not used: "},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(content[:100])
		}, 1, 2, "not used: "},
		{"another build", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(elfFile(another))
		}, 1, 2, fmt.Sprintf("not used: it has build ID %x", another)},
		{"no build ID", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(elfFile(nil))
		}, 1, 2, "not used: "},
		{"endless", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 1<<16))
			}
		}, 1, 2, "not used: too large: more than 1048576 bytes"},
		{"endless when unpacked", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed)
		}, 1, 2, "not used: too large: more than 1048576 bytes"},
		{"large", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1048577")
		}, 1, 2, "not used: too large: 1048577 bytes"},
		{"too large for us, it says", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotAcceptable)
		}, 1, 2, "not used: too large"},
		{"broken", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}, 3, 6, "500 Internal Server Error"},
		{"forbidden", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
		}, 1, 2, "403 Forbidden"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 3, 3, "EOF"},
		{"hangs up in between", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(content[:100])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 3, 6, "unexpected EOF"},
		{"sends to a file", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///proc/self/exe", http.StatusFound)
		}, 3, 3, "sends on to file:///proc/self/exe"},
		{"sends in circles", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, 30, 30, "sends on to"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url, asked := unreachable(t), new(atomic.Int32)
			if c.handler != nil {
				url, asked = serve(t, c.handler)
			}
			o := Options{Servers: []string{url}, Cache: t.TempDir(), Timeout: time.Minute, MaxSize: 1 << 20,
				Retries: 2}
			slow := c.words == "too slow"
			if slow {
				o.Timeout = time.Second / 2
			}
			bad := New(t.Context(), o)
			for range 2 {
				_, err := bad.Find(buildID, Debuginfo)
				if err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), c.words) ||
					!strings.Contains(err.Error(), url) {
					t.Errorf("error %v", err)
				}
			}
			// One that comes late is not counted, as on a busy machine.
			counted := func(want int32) bool { n := asked.Load(); return n == want || slow && n < want }
			if !counted(c.requests) {
				t.Errorf("%d requests", asked.Load())
			}
			if _, err := bad.Find(another, Debuginfo); c.name != "another build" && err == nil {
				t.Error("found")
			}
			if !counted(c.all) {
				t.Errorf("%d requests for two files", asked.Load())
			}
			if c.name != "another build" { // that is the right one for the second request
				if left := leftovers(t, o.Cache); len(left) != 0 {
					t.Errorf("left in the cache: %q", left)
				}
			}
			// Together with a good server it does no harm, whichever of the two is faster.
			working, _ := serve(t, good)
			o.Servers = []string{url, working}
			lane.Eventually(t, "a file in time", func() bool { // the good one may be too slow on a busy machine
				file, err := New(t.Context(), o).Find(buildID, Debuginfo)
				if err != nil && !slow {
					t.Fatal(err)
				}
				file.Close()
				return err == nil
			})
			fetched(t, New(t.Context(), o))
		})
	}
}

// TestTimeoutIsForSoManyBytes: a server has the timeout for each part of a file, so a large file may take longer, but
// not from a server that is slow. The time is not the machine's.
func TestTimeoutIsForSoManyBytes(t *testing.T) { synctest.Test(t, testTimeoutIsForSoManyBytes) }

func testTimeoutIsForSoManyBytes(t *testing.T) {
	const timeout = time.Minute
	for each, want := range map[int]error{enoughBytes: nil, enoughBytes / 2: errSlow, 0: errSlow} {
		w := newWatch(t.Context(), timeout)
		for range 4 {
			time.Sleep(timeout * 3 / 4)
			w.came(each)
		}
		if got := context.Cause(w.ctx); got != want {
			t.Errorf("%d bytes within %v: %v, want %v", each, timeout*3/4, got, want)
		}
		w.stop()
	}
}

func TestALateServerIsNotWaitedFor(t *testing.T) {
	silent, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	working, _ := serve(t, good)
	// Without a timeout, waiting for the silent one would not end.
	fetched(t, New(t.Context(), Options{Servers: []string{silent, working}, Cache: t.TempDir()}))
}

func TestMaxTimeIsForAllServersTogether(t *testing.T) {
	slow, asked := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 1<<10))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	})
	late, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := New(t.Context(), Options{Servers: []string{slow, late}, Cache: t.TempDir(),
		MaxTime: 300 * time.Millisecond, Retries: 2})
	for i, id := range [][]byte{buildID, another} { // neither server is marked as down
		if _, err := c.Find(id, Debuginfo); !errors.Is(err, errMaxTime) {
			t.Errorf("error %v", err)
		}
		if n, late := int(asked.Load()), c.servers[1]; n > i+1 || late.down != nil {
			t.Errorf("%d requests; the other server: %v", n, late.down)
		}
	}
}

func TestInterrupt(t *testing.T) {
	url, asked := serve(t, hang)
	cache := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	c := New(ctx, Options{Servers: []string{url}, Cache: cache, Progress: func(string, int64, int64) {
		cancel()
	}})
	for range 2 {
		if _, err := c.Find(buildID, Debuginfo); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
	if n := asked.Load(); n > 1 {
		t.Errorf("%d requests", n)
	}
	if left := leftovers(t, cache); len(left) != 0 {
		t.Errorf("left in the cache: %q", left)
	}
	// A file in the cache is still found.
	write(t, filepath.Join(cache, key.id, "debuginfo"), content)
	fetched(t, c)
}

func TestProgress(t *testing.T) {
	const size = 300 << 10
	progress := make(chan int64, 1000)
	awaited := func(least int64) {
		for late := time.After(time.Minute); ; {
			select {
			case done := <-progress:
				if done >= least {
					return
				}
			case <-late:
				t.Error("no progress is told")
				return
			}
		}
	}
	url, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-DEBUGINFOD-SIZE", fmt.Sprint(size))
		_ = http.NewResponseController(w).Flush() // and no Content-Length
		b := append(elfFile(buildID), make([]byte, size)...)[:size]
		awaited(0)
		_, _ = w.Write(b[:size/3])
		_ = http.NewResponseController(w).Flush()
		awaited(1)
		_, _ = w.Write(b[size/3:])
	})
	var calls []string
	o := Options{Servers: []string{url}, Cache: t.TempDir(), Progress: func(u string, done, total int64) {
		calls = append(calls, fmt.Sprintf("%s %v %d", strings.TrimPrefix(u, url), done > 0, total))
		progress <- done
	}}
	file, err := New(t.Context(), o).Find(buildID, Debuginfo)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	if len(calls) < 3 || calls[0] != path+" false -1" ||
		calls[len(calls)-2] != path+fmt.Sprintf(" true %d", size) || calls[len(calls)-1] != " false 0" {
		t.Errorf("%q", calls)
	}
}

func TestManyAtOnce(t *testing.T) {
	url, _ := serve(t, good)
	cache := t.TempDir()
	write(t, filepath.Join(cache, cleanInterval), []byte("0"))
	write(t, filepath.Join(cache, maxUnused), []byte("1"))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				fetchedOrReported(t, client(cache, url))
			}
		})
	}
	all.Wait()
	if left := leftovers(t, cache); len(left) != 2 {
		t.Errorf("in the cache: %q", left)
	}
}

func fetchedOrReported(t *testing.T, c *Client) {
	file, err := c.Find(buildID, Debuginfo)
	if err != nil {
		t.Error(err)
		return
	}
	file.Close()
}

func TestACacheThatCannotBeWritten(t *testing.T) {
	url, asked := serve(t, good)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, nil)
	var failed *CacheError
	if _, err := client(file, url).Find(buildID, Debuginfo); !errors.As(err, &failed) || failed.Folder != file ||
		asked.Load() != 0 {
		t.Errorf("asked %d times, %v", asked.Load(), err)
	}
}

func TestAnotherBuildInTheCacheIsNotUsed(t *testing.T) {
	cache := t.TempDir()
	name := filepath.Join(cache, key.id, "debuginfo")
	write(t, name, elfFile(another))
	var refused *RefusedError
	if _, err := client(cache, unreachable(t)).Find(buildID, Debuginfo); !errors.As(err, &refused) ||
		refused.From != name {
		t.Errorf("error %v", err)
	}
}

func TestBuildIDsThatNobodyHas(t *testing.T) {
	url, asked := serve(t, good)
	c := client(t.TempDir(), url)
	for _, id := range [][]byte{nil, {1}, make([]byte, maxBuildID)} {
		if _, err := c.Find(id, Debuginfo); !errors.Is(err, ErrNotFound) || asked.Load() != 0 {
			t.Errorf("%x: %v", id, err)
		}
	}
}
