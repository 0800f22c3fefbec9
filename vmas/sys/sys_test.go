package sys

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRawCalls: they do what x/sys's calls do, and allocate nothing.
func TestRawCalls(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f, err := os.Open("sys_test.go")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	whole, err := os.ReadFile("sys_test.go")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epoll)
	err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, pair[1], &unix.EpollEvent{Events: unix.EPOLLIN, Fd: 7})
	if err != nil {
		t.Fatal(err)
	}
	message, name := []byte("message"), []byte("sys_test.go\x00")
	rights := unix.UnixRights(fd)
	var b [16]byte
	var control [64]byte
	var events [2]unix.EpollEvent
	for what, call := range map[string]func() bool{
		"clock_gettime": func() bool {
			now, err := ClockGettime(unix.CLOCK_MONOTONIC)
			return err == nil && now.Nano() > 0
		},
		"clock_gettime of a clock that is none": func() bool { _, err := ClockGettime(99); return err == unix.EINVAL },
		"time of the thread and of the process": func() bool { own := ThreadTime(); return own > 0 && ProcessTime() >= own },
		"pread": func() bool {
			n, err := Pread(fd, b[:], 8)
			return err == nil && n == len(b) && bytes.Equal(b[:], whole[8:8+len(b)])
		},
		"pread of no file": func() bool { n, err := Pread(-1, b[:], 8); return n == 0 && err == unix.EBADF },
		"preadv2": func() bool {
			n, err := PreadCached(fd, b[:], int64(len(whole)-4))
			return err == nil && n == 4 || n == 0 && (err == unix.EAGAIN || err == unix.EOPNOTSUPP)
		},
		"open, read and close": func() bool {
			opened, err := Open(name)
			if err != nil {
				return false
			}
			n, err := Read(opened, b[:])
			Close(opened)
			_, closed := Read(opened, b[:])
			return err == nil && bytes.Equal(b[:n], whole[:n]) && closed == unix.EBADF
		},
		"open of what is not there": func() bool { fd, err := Open(name[1:]); return fd == -1 && err == unix.ENOENT },
		"statx": func() bool {
			var st unix.Statx_t
			return Statx(fd, unix.AT_STATX_DONT_SYNC, unix.STATX_SIZE, &st) == nil && st.Size == uint64(len(whole))
		},
		"getrlimit": func() bool {
			is, err := Getrlimit(unix.RLIMIT_NOFILE)
			var same unix.Rlimit
			return err == nil && unix.Getrlimit(unix.RLIMIT_NOFILE, &same) == nil && is == same
		},
		"sched_getattr": func() bool { a, err := SchedGetattr(0); return err == nil && a.Policy <= unix.SCHED_DEADLINE },
		"getcpu":        func() bool { cpu, err := Getcpu(); return err == nil && cpu >= 0 && cpu < 1<<13 },
		"messages": func() bool {
			n, _ := EpollPoll(epoll, events[:])
			if n != 0 || Poll(pair[1], 0) || Sendmsg(pair[0], message, rights, unix.MSG_DONTWAIT) != nil {
				return false
			}
			n, err := EpollPoll(epoll, events[:])
			if err != nil || n != 1 || events[0].Fd != 7 || !Poll(pair[1], 0) {
				return false
			}
			n, controls, err := Recvmsg(pair[1], b[:], control[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			if err != nil || string(b[:n]) != "message" || controls != len(rights) {
				return false
			}
			Close(int(int32(control[16]) | int32(control[17])<<8))
			_, _, err = Recvmsg(pair[1], b[:], control[:], unix.MSG_DONTWAIT)
			return err == unix.EAGAIN
		},
	} {
		if n := testing.AllocsPerRun(3, func() {
			if !call() {
				t.Errorf("%s: not what was expected", what)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
}

// TestSigwait: a signal that is blocked is waited for, also where the scheduler knows.
func TestSigwait(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const signals = uint64(1) << (unix.SIGUSR2 - 1)
	var was unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &unix.Sigset_t{Val: [16]uint64{signals}}, &was); err != nil {
		t.Fatal(err)
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &was, nil)
	for _, told := range []bool{false, true} {
		if err := unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		for _, want := range []error{nil, unix.EAGAIN} { // the second time there is none
			err := Sigwait(signals, told, time.Millisecond)
			for ; err == unix.EINTR; err = Sigwait(signals, told, time.Millisecond) {
			}
			if err != want {
				t.Errorf("told %v: %v, not %v", told, err, want)
			}
		}
	}
}

// TestSleep: the thread sleeps at least that long.
// TestSleep: a thread sleeps until its time is over, or a signal comes. Of a test that hangs, one of the two is wrong.
func TestSleep(t *testing.T) {
	Sleep(time.Millisecond)
	began := make(chan int)
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		began <- unix.Gettid()
		Sleep(time.Hour)
	}()
	tid := <-began
	for {
		select {
		case <-done:
			return
		default: // it may come before the thread sleeps
			if err := unix.Tgkill(unix.Getpid(), tid, unix.SIGURG); err != nil {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
	}
}
