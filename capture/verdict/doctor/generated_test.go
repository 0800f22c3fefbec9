package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProcessesThatGenerateCode says of processes whether their code will have names, and whole stacks.
func TestProcessesThatGenerateCode(t *testing.T) {
	const (
		status  = "Uid:\t%d\t%d\t%d\t%d\nNSpid:\t4711\t1\n"
		node    = "00400000-00500000 r-xp 00000000 fe:01 1    /usr/bin/node\n"
		jvm     = "00400000-00500000 r-xp 00000000 fe:01 1    /usr/lib/jvm/lib/server/libjvm.so\n"
		python  = "00400000-00500000 r-xp 00000000 fe:01 1    /usr/bin/python3.12\n"
		cat     = "00400000-00500000 r-xp 00000000 fe:01 1    /usr/bin/cat\n"
		made    = "7f0000000000-7f0000100000 rwxp 00000000 00:00 0 \n"
		data    = "7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \n"
		dump    = "7f0000200000-7f0000201000 r-xp 00000000 fe:01 2    /srv/jit-4711.dump\n"
		perfMap = "root/tmp/perf-1.map"
	)
	for _, c := range []struct {
		name  string
		files map[string]string
		owner int
		says  []string // of each check; "" for one that is fine
	}{
		{"ended", nil, 0, []string{"it has ended"}},
		{"no generated code", map[string]string{"maps": cat + data}, 0, []string{""}},
		{"another program", map[string]string{"maps": cat + made}, 0,
			[]string{"there is no /tmp/perf-1.map: if its runtime can write"}},
		{"node", map[string]string{"maps": node + made}, 0,
			[]string{"code that node generates will have no names, as there is no /tmp/perf-1.map: start it with `node --perf"}},
		{"node with a map", map[string]string{"maps": node + made, perfMap: "10 8 f\n"}, 0, []string{""}},
		{"node with a jitdump", map[string]string{"maps": node + made + dump}, 0, []string{""}},
		{"a stranger's map", map[string]string{"maps": node + made, perfMap: "10 8 f\n"}, 12345,
			[]string{"/tmp/perf-1.map, with the names of the code that node generates, is not used: it belongs to user 12345"}},
		{"Java", map[string]string{"maps": jvm + made}, 0,
			[]string{"run `jcmd 4711 Compiler.perfmap`", "java -XX:+PreserveFramePointer"}},
		{"Java with all", map[string]string{"maps": jvm + made, perfMap: "10 8 f\n",
			"cmdline": "java\x00-XX:+PreserveFramePointer\x00Main\x00"}, 0, []string{""}},
		{"Python", map[string]string{"maps": python}, 0, []string{"start it with `python3 -X perf`"}},
		{"Python with a map", map[string]string{"maps": python + made, perfMap: "10 8 f\n"}, 0, []string{""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, root := healthy(t)
			user := os.Getuid()
			put(t, root, "proc/4711/status", fmt.Sprintf(status, user, user, user, user))
			for name, text := range c.files {
				put(t, root, "proc/4711/"+name, text)
			}
			if c.owner != 0 {
				if err := os.Chown(filepath.Join(root, "proc/4711", perfMap), c.owner, -1); err != nil {
					t.Skip("not root: files cannot be given away")
				}
			}
			checks := m.Generated(4711)
			if len(checks) != len(c.says) {
				t.Fatalf("%+v", checks)
			}
			for i, check := range checks {
				if fine := c.says[i] == ""; fine != (check.State == OK) || !strings.Contains(check.Detail, c.says[i]) {
					t.Errorf("%+v, want %q", check, c.says[i])
				}
			}
		})
	}
}
