package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// diskSize is the size of the disk that is too small.
const diskSize = 64 << 10

// A process of its own has DEST on a small disk. Where that cannot be mounted, its files cannot become larger.
func init() {
	dest := os.Getenv("DIRSYNC_TEST_SMALL_DISK")
	if dest == "" {
		return
	}
	if syscall.Mount("tmpfs", dest, "tmpfs", 0, "size=64k") == nil {
		return
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: diskSize, Max: diskSize}); err != nil {
		panic(err)
	}
}

// startOnSmallDisk runs the program with a DEST on which a large file does not fit.
func startOnSmallDisk(t *testing.T, src, dst tdir, flags ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	src.must(err)
	start := func(namespaces uintptr) (*process, error) {
		p := &process{Cmd: exec.CommandContext(t.Context(), exe, append(flags, src.path, dst.path)...)}
		p.Stdout, p.Stderr = &p.stdout, &p.stderr
		p.Env = append(os.Environ(), "DIRSYNC_TEST_MAIN=1", "DIRSYNC_TEST_SMALL_DISK="+dst.path)
		if namespaces != 0 {
			ids := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
			p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, UidMappings: ids(os.Getuid()), GidMappings: ids(os.Getgid())}
		}
		return p, p.Start()
	}
	p, err := start(syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS)
	if err != nil {
		p, err = start(0)
	}
	src.must(err)
	return p
}

// An operator whose disk is full reads so on the page, also after the last retry.
func TestFullDisk(t *testing.T) {
	src, dst := newDirs(t)
	src.file("small", "x")
	src.file("large", strings.Repeat("x", 4*diskSize))
	p := startOnSmallDisk(t, src, dst, "-settle", "10ms", "-max-retries", "2", "-rescan", "0", "-http", "127.0.0.1:0")
	var address string
	eventually(t, "the address", func() bool {
		address = regexp.MustCompile(`http://[^/\s]*`).FindString(p.stderr.String())
		return address != ""
	})
	type key struct {
		Key, Error string
		Attempt    int
	}
	var page struct {
		Failing []key
		GivenUp []key `json:"given_up"`
	}
	eventually(t, "a path that is given up", func() bool {
		_, body := getPage(t, address+"/debug/workqueue?queue=dirsync&format=json")
		src.must(json.Unmarshal([]byte(body), &page))
		return len(page.GivenUp) > 0
	})
	if k := page.GivenUp[0]; len(page.GivenUp) != 1 || k.Key != "large" || k.Attempt != 3 || !isFull(k.Error) || len(page.Failing) != 0 {
		t.Errorf("%+v", page)
	}
	_, body := getPage(t, address+"/debug/workqueue?queue=dirsync")
	if _, section, _ := strings.Cut(body, "Given up</h2>"); !isFull(section) {
		t.Errorf("the page does not say why:\n%s", body)
	}
	src.must(p.Process.Signal(os.Interrupt))
	wantCode(t, p.wait(), 0)
}

func isFull(text string) bool {
	return strings.Contains(text, syscall.ENOSPC.Error()) || strings.Contains(text, syscall.EFBIG.Error())
}
