package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// getPage returns what a browser sees at an address.
func getPage(t *testing.T, url string) (landed, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, response.Status, err)
	}
	return response.Request.URL.Path, string(content)
}

func TestHTTP(t *testing.T) {
	src, dst := newDirs(t)
	src.file("f", "x")
	w := startWatching(t, src, dst, "-http", "127.0.0.1:0")
	address := regexp.MustCompile(`http://[^/]*`).FindString(w.stderr.String())
	path, body := getPage(t, address)
	if path != "/debug/workqueue" || !strings.Contains(body, `href="?queue=dirsync"`) {
		t.Errorf("/ leads to %s:\n%s", path, body)
	}
	_, body = getPage(t, address+"/debug/workqueue?queue=dirsync")
	if !strings.Contains(body, "Longest in work") {
		t.Errorf("the queue keeps no times:\n%s", body)
	}
	if _, body = getPage(t, address+"/metrics"); !strings.Contains(body, `workqueue_adds_total{name="dirsync"} `) {
		t.Errorf("/metrics does not have the queue:\n%s", body)
	}
	wantCode(t, w.end(), 0)
	if conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://")); err == nil {
		conn.Close()
		t.Error("it still listens after the end")
	}
}

func TestHTTPOnce(t *testing.T) {
	checkGoroutines(t)
	src, dst := newDirs(t)
	src.file("f", "x")
	r := once(t, src, dst, "-http", "127.0.0.1:0")
	wantCode(t, r, 0)
	wantEqual(t, src, dst)
}

// An address that cannot be had is told before anything is done.
func TestHTTPBadAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, addr := range []string{taken.Addr().String(), "nonsense", "127.0.0.1:99999", "127.0.0.1:http:80"} {
		src, dst := newDirs(t)
		src.file("f", "x")
		dst.remove(".")
		r := once(t, src, dst, "-http", addr)
		wantCode(t, r, 2)
		if !strings.Contains(r.stderr, "-http "+addr+": ") || r.stdout != "" {
			t.Errorf("%s: %s%s", addr, r.stdout, r.stderr)
		}
		if _, err := os.Lstat(dst.path); !os.IsNotExist(err) {
			t.Errorf("%s: DEST was made: %v", addr, err)
		}
	}
}
