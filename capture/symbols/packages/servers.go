package packages

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// plainServer is the address of a server as it may be in a command that somebody copies into a shell.
var plainServer = regexp.MustCompile(`^https?://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._/-]*)?$`)

// mostServers bounds the servers, and the files that name them.
const mostServers = 16

// Servers are the debuginfod servers that the distribution names for its users, as DEBUGINFOD_URLS has them; "" for
// none. Arch has debug files there only.
func (s *System) Servers() string {
	entries, _ := os.ReadDir(filepath.Join(s.Root, "/etc/debuginfod"))
	var servers []string
	for _, e := range entries[:min(len(entries), mostServers)] {
		if filepath.Ext(e.Name()) != ".urls" {
			continue
		}
		for _, word := range strings.Fields(string(s.read("/etc/debuginfod/" + e.Name()))) {
			if plainServer.MatchString(word) { // and not how signatures are checked, such as ima:enforcing
				servers = append(servers, word)
			}
		}
	}
	return strings.Join(servers[:min(len(servers), mostServers)], " ")
}
