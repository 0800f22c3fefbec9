package debuginfod

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"unspool/dwarfcfi/elf"
	"unspool/unwind/image/debugfile"
)

// Kind is which file of a build is wanted.
type Kind string

const (
	Executable Kind = "executable" // the image itself
	Debuginfo  Kind = "debuginfo"  // its debug file, or a dwz file, which has a build ID of its own
)

// Options are the settings that elfutils' client takes from the environment: see Environment. Zero means no
// limit.
type Options struct {
	Servers []string // URLs
	Cache   string   // folder
	Timeout time.Duration
	MaxTime time.Duration // for one file, all servers together
	MaxSize int64         // in bytes, debugfile.Largest at most
	Retries int           // after failures that may be temporary
	Header  http.Header   // added to each request

	// Progress is called about every tenth of a second by the goroutine that called Find: how many bytes of the
	// file at a URL have arrived, and how many it has, -1 if that is not known. At the end it is called with an
	// empty URL.
	Progress func(url string, done, total int64)

	Log io.Writer // a line for each request and its end; nil for none
}

// Client finds files. It is safe for concurrent use, and fetches one file at a time.
type Client struct {
	ctx     context.Context
	options Options
	servers []*server
	cache   cache
	http    http.Client

	mu      sync.Mutex
	cleaned bool
	failed  map[request]error // requests that are not repeated
}

type request struct {
	id   string // hexadecimal
	kind Kind
}

// ErrNotFound means that all servers were asked, now or not long ago, and none has the file. It wraps
// fs.ErrNotExist.
var ErrNotFound = fmt.Errorf("no debuginfod server has it: %w", fs.ErrNotExist)

// New returns a Client. Once ctx is done, no server is asked any more, and a request that is running ends;
// files in the cache are still found.
func New(ctx context.Context, o Options) *Client {
	if o.MaxSize <= 0 || o.MaxSize > debugfile.Largest {
		o.MaxSize = debugfile.Largest
	}
	if folder, err := filepath.Abs(o.Cache); err == nil {
		o.Cache = folder
	}
	c := &Client{ctx: ctx, options: o, cache: cache{o.Cache}, failed: make(map[request]error)}
	c.http = newHTTP()
	for _, url := range o.Servers {
		c.servers = append(c.servers, newServer(url))
	}
	return c
}

// maxBuildID is the length in bytes of the longest build ID that is asked for, as in elfutils.
const maxBuildID = 64

// Find opens a file of a build, from the cache or, at the first call for it, from a server. The caller closes
// the file. The error is ErrNotFound, or one or several (joined) that name a server (*ServerError), what it
// sent (*RefusedError), the cache (*CacheError), or the Client's context.
func (c *Client) Find(buildID []byte, kind Kind) (*os.File, error) {
	if len(buildID) < 2 || len(buildID) >= maxBuildID {
		return nil, ErrNotFound
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := request{hex.EncodeToString(buildID), kind}
	if err := c.failed[r]; err != nil {
		return nil, err
	}
	file, err := c.find(r)
	if err == nil {
		if err = checkBuildID(file, r.id); err == nil {
			return file, nil
		}
		file.Close()
		err = &RefusedError{c.cache.path(r), err}
	}
	if c.ctx.Err() == nil {
		c.failed[r] = err
	}
	return nil, err
}

func (c *Client) find(r request) (*os.File, error) {
	if err := c.cache.prepare(); err != nil {
		return nil, err
	}
	if !c.cleaned {
		c.cleaned = true
		c.cache.clean(c.ctx)
	}
	file, err := c.cache.open(r)
	if err == nil || errors.Is(err, ErrNotFound) {
		c.log("%s/%s: in the cache: %v", r.id, r.kind, err == nil)
		return file, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := c.fetch(r); err != nil {
		return nil, err
	}
	return c.cache.open(r)
}

func (c *Client) log(format string, args ...any) {
	if c.options.Log != nil {
		fmt.Fprintf(c.options.Log, "debuginfod: "+format+"\n", args...)
	}
}

// checkBuildID returns an error if a file does not belong to the build.
func checkBuildID(file io.ReaderAt, id string) error {
	found, err := elf.ReadBuildID(file)
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return fmt.Errorf("it has no build ID, asked for was %s", id)
	case hex.EncodeToString(found) != id:
		return fmt.Errorf("it has build ID %x, asked for was %s", found, id)
	}
	return nil
}

// RefusedError is why a file is not used.
type RefusedError struct {
	From string // its URL, or its path in the cache
	Err  error
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s: not used: %v", e.From, e.Err) }
func (e *RefusedError) Unwrap() error { return e.Err }

// ServerError is why a server could not be used.
type ServerError struct {
	Server string // its URL, without a password
	Err    error
}

func (e *ServerError) Error() string {
	return fmt.Sprintf("debuginfod server %s: %v", e.Server, e.Err)
}
func (e *ServerError) Unwrap() error { return e.Err }
