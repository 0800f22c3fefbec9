package runtimes

import (
	"slices"
	"testing"
)

func TestRuntimesByTheirFiles(t *testing.T) {
	for want, files := range map[string][][]string{
		"OpenJ9":   {{"/opt/java", "/opt/lib/libjvm.so", "/opt/lib/libj9jit29.so"}},
		"Java":     {{"/usr/bin/java", "/usr/lib/jvm/lib/server/libjvm.so"}, {"/usr/bin/python3.13", "/opt/libjvm.so"}},
		".NET":     {{"/usr/bin/dotnet", "/usr/share/dotnet/libcoreclr.so"}},
		"Erlang":   {{"/usr/lib/erlang/erts-14.2/bin/beam.smp"}},
		"node":     {{"/usr/bin/node"}, {"/usr/bin/app", "/usr/lib/libnode.so.115"}},
		"Ruby":     {{"/usr/bin/ruby3.3", "/usr/lib/libruby-3.3.so.3.3"}},
		"PHP":      {{"/usr/sbin/php-fpm8.2"}, {"/usr/sbin/apache2", "/usr/lib/apache2/modules/libphp8.2.so"}},
		"LuaJIT":   {{"/usr/bin/luajit-2.1.0-beta3"}, {"/usr/sbin/nginx", "/usr/lib/libluajit-5.1.so.2"}},
		"Wasmtime": {{"/usr/bin/wasmtime"}},
		"Python":   {{"/usr/bin/python3.12"}, {"/usr/bin/uwsgi", "/usr/lib/libpython3.12.so.1.0"}},
		"":         {{"/usr/bin/cat", "/lib/libc.so.6"}, {"/usr/bin/nodemon"}, {"/usr/bin/python2.7"}, nil},
	} {
		for _, of := range files {
			got := ""
			if r := Of(slices.Values(of)); r != nil {
				got = r.Name
			}
			if got != want {
				t.Errorf("%q: %q, want %q", of, got, want)
			}
		}
	}
}

func TestFramePointersOnACommandLine(t *testing.T) {
	java, node := Of(slices.Values([]string{"libjvm.so"})), Of(slices.Values([]string{"node"}))
	if java.Keeps([]string{"java", "Main"}) || !java.Keeps([]string{"java", "-XX:+PreserveFramePointer", "Main"}) ||
		!node.Keeps([]string{"node", "main.js"}) {
		t.Error("frame pointers are mistaken")
	}
}

// TestProcessesAreGrouped: what is the same of many processes is said once, and what is rare is not.
func TestProcessesAreGrouped(t *testing.T) {
	java := Of(slices.Values([]string{"libjvm.so"}))
	groups := Groups([]Process{
		{PID: 1, Runtime: java, Samples: 10}, {PID: 2, Runtime: java, Samples: 30}, {PID: 3, Name: "a", Samples: 35},
		{PID: 4, Name: "b", Samples: 5}, {PID: 5, Runtime: java, Runs: true, Samples: 20}, {PID: 6, Name: "c"},
	}, 6)
	var who []string
	for i := range groups {
		who = append(who, groups[i].Who())
	}
	if want := []string{"Java (2 processes)", "a (process 3)", "Java (process 5)"}; !slices.Equal(who, want) {
		t.Errorf("%q, want %q", who, want)
	}
	if groups[0].Samples != 40 || groups[0].PID != 2 {
		t.Errorf("%+v", groups[0])
	}
}
