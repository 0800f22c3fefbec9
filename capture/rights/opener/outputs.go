package opener

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"unspool/capture/output"
)

// An Output is the place of one in the opener.
type Output struct {
	client *Client
	number uint64
	path   string // for errors
}

var _ output.Keeper = (*Output)(nil)

// GrantOutput lets files be created later in the directory of an output, and take its name.
func (c *Client) GrantOutput(dir int, path, name string, kept bool, dated []string) (output.Keeper, error) {
	text := strings.Join(append([]string{path, name}, dated...), "\x00")
	r := request{op: grantOutput, text: []byte(text)}
	if kept {
		r.end = keptBefore
	}
	a, err := c.askGranted(r, dir)
	if err != nil {
		return nil, err
	}
	return &Output{c, a.value, path}, nil
}

// ask asks for something that is about a file of the output.
func (o *Output) ask(op operation, temporary string) (answer, error) {
	return o.askFor(request{op: op, text: []byte(temporary)})
}

// askFor sends a request about the output. Errors of the opener name the file; that it has ended is said of the file,
// too.
func (o *Output) askFor(r request) (answer, error) {
	r.start = o.number
	a, err := o.client.askGranted(r, -1)
	if errors.Is(err, ErrEnded) {
		err = &fs.PathError{Op: "write", Path: o.path, Err: err}
	}
	return a, err
}

// Create is for [output.Keeper].
func (o *Output) Create() (file *os.File, temporary string, err error) {
	a, err := o.ask(createOutput, "")
	if err != nil {
		return nil, "", err
	}
	return os.NewFile(uintptr(a.fd), o.path), string(a.bytes), nil
}

// Keep is for [output.Keeper].
func (o *Output) Keep(temporary string) error {
	_, err := o.ask(keepOutput, temporary)
	return err
}

// KeepOld is for [output.Keeper].
func (o *Output) KeepOld(temporary string) error {
	_, err := o.ask(keepOldOutput, temporary)
	return err
}

// KeepDated is for [output.Keeper].
func (o *Output) KeepDated(temporary string, most int) (suffix string, err error) {
	a, err := o.askFor(request{op: keepDatedOutput, end: uint64(most), text: []byte(temporary)})
	if err != nil {
		return "", err
	}
	return string(a.bytes), nil
}

// Discard is for [output.Keeper].
func (o *Output) Discard(temporary string) error {
	_, err := o.ask(discardOutput, temporary)
	return err
}

// Remove is for [output.Keeper].
func (o *Output) Remove() error {
	_, err := o.ask(removeOutput, "")
	return err
}

// GrantFolder makes the opener remove a folder by RemoveFolders, or when this process ends, if it is empty
// then.
func (c *Client) GrantFolder(path string) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(parent)
	_, err = c.askGranted(request{op: grantFolder, text: []byte(filepath.Base(path))}, parent)
	return err
}

// RemoveFolders removes the granted folders that are empty.
func (c *Client) RemoveFolders() error {
	_, err := c.askGranted(request{op: removeFolders}, -1)
	return err
}
