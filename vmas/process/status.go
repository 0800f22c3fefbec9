package process

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// An Identity is what a process's status says of who it is (proc_pid_status(5)).
type Identity struct {
	Users []uint32 // each once: real, effective, saved set and file system UIDs
	Own   uint32   // the process's PID in its own PID namespace; 0 if the kernel does not say
}

// Wrote returns an error if the process cannot have written a file, as another user owns that, who is not root.
func (i *Identity) Wrote(file *os.File) error {
	st, err := Fstat(file)
	if err == nil && st.Uid != 0 && !slices.Contains(i.Users, st.Uid) {
		err = fmt.Errorf("it belongs to user %d, not to the process's (%s) or root", st.Uid,
			strings.Trim(fmt.Sprint(i.Users), "[]"))
	}
	return err
}

// ParseStatus reads the text of a status.
func ParseStatus(text string) (s Identity) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch key {
		case "Uid":
			for _, f := range fields {
				if uid, err := strconv.ParseUint(f, 10, 32); err == nil && !slices.Contains(s.Users, uint32(uid)) {
					s.Users = append(s.Users, uint32(uid))
				}
			}
		case "NSpid": // from the PID namespace of /proc to the process's own
			if len(fields) > 0 {
				if own, err := strconv.ParseUint(fields[len(fields)-1], 10, 32); err == nil {
					s.Own = uint32(own)
				}
			}
		}
	}
	return s
}
