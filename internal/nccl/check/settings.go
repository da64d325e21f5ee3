package check

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// settings are the variables as NCCL and the plugin see them: those of the environment, and where it
// has none those of NCCL's files.
type settings struct {
	values map[string]string
	from   map[string]string // the file of each variable that came from a file
}

// readSettings reads the environment and then the files, as NCCL does (src/misc/param.cc): the
// user's file, then the host's. root stands for /.
func readSettings(environ []string, root string) settings {
	s := settings{values: map[string]string{}, from: map[string]string{}}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			s.values[name] = value
		}
	}
	user := s.values["NCCL_CONF_FILE"]
	if home := s.values["HOME"]; user == "" && home != "" {
		user = filepath.Join(home, ".nccl.conf")
	}
	if user != "" {
		s.addFile(user)
	}
	s.addFile(filepath.Join(root, "etc/nccl.conf"))
	return s
}

// addFile adds the variables that are not set yet. A file that cannot be read counts as empty.
func (s settings) addFile(path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, ok := strings.Cut(strings.TrimSuffix(lines.Text(), "\r"), "=")
		if _, there := s.values[name]; !ok || there || strings.HasPrefix(name, "#") {
			continue
		}
		s.values[name], s.from[name] = value, path
	}
}

// lookup has the form of os.LookupEnv.
func (s settings) lookup(name string) (string, bool) {
	value, ok := s.values[name]
	return value, ok
}

func (s settings) get(name string) string { return s.values[name] }

// number reads a variable as NCCL does: what does not begin with a number is the default.
func (s settings) number(name string, otherwise int64) int64 {
	text := s.values[name]
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// written is how a variable is set, and where if not in the environment.
func (s settings) written(name string) string {
	text := name + "=" + s.values[name]
	if file := s.from[name]; file != "" {
		text += " (in " + file + ")"
	}
	return text
}

// environ is the environment of a process that has all of them.
func (s settings) environ() []string {
	var all []string
	for name, value := range s.values {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return all
}
