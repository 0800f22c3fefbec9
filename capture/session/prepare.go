package session

import (
	"time"

	"unspool/capture/counts"
	"unspool/unwind/image/fileid"
	"unspool/unwind/vdso"
)

// Prepare reads what a process needs of the system, and opens what it may not open when it is confined.
func Prepare() error {
	_, _ = time.Now().Zone() // reads /etc/localtime
	_, _ = vdso.Own()
	counts.Prepare()
	return fileid.Prepare()
}
