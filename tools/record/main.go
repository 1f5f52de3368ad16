// Command record runs a program and draws what it prints as a moving picture: an SVG in which each line
// appears when the program printed it. What the program writes to its standard error is not drawn.
//
//	go build -C examples -o /tmp/sharded ./sharded
//	go run -C tools ./record -o ../docs/sharded.svg -title 'go run ./examples/sharded -demo' /tmp/sharded -demo
package main

import (
	"bufio"
	"flag"
	"fmt"
	"html"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"
)

type line struct {
	at   time.Duration
	text string
}

func main() {
	log.SetFlags(0)
	out := flag.String("o", "recording.svg", "file to write")
	title := flag.String("title", "", "command line to show; empty for the one that runs")
	pause := flag.Duration("pause", 5*time.Second, "how long the last picture stays before it begins again")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: record [flags] PROGRAM [ARGUMENT...]\n\n"+
			"Draws what a program prints as a moving SVG.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if *title == "" {
		*title = strings.Join(flag.Args(), " ")
	}
	lines, err := run(exec.Command(flag.Arg(0), flag.Args()[1:]...))
	if err != nil {
		log.Fatal("record: ", err)
	}
	var svg strings.Builder
	draw(&svg, *title, lines, *pause)
	if err := os.WriteFile(*out, []byte(svg.String()), 0o644); err != nil {
		log.Fatal("record: ", err)
	}
}

func run(command *exec.Cmd) (lines []line, err error) {
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	command.Stderr = io.Discard
	if err := command.Start(); err != nil {
		return nil, err
	}
	began := time.Now()
	scanner := bufio.NewScanner(stdout)
	for scanner.Scan() {
		lines = append(lines, line{time.Since(began), scanner.Text()})
	}
	if err := scanner.Err(); err != nil {
		return nil, err
	}
	if err := command.Wait(); err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s printed nothing", command)
	}
	return lines, nil
}

const rowHeight, charWidth, margin = 19, 8.0, 16 // pixels

// draw writes the picture. Readers who want no motion see all lines at once.
func draw(w io.Writer, title string, lines []line, pause time.Duration) {
	widest := len(title) + 2
	for _, l := range lines {
		widest = max(widest, len(l.text))
	}
	total := lines[len(lines)-1].at + pause
	width, height := int(float64(widest)*charWidth)+2*margin, (len(lines)+1)*rowHeight+2*margin
	fmt.Fprintf(w, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' "+
		"font-family='ui-monospace,Menlo,Consolas,monospace' font-size='13'>\n", width, height)
	fmt.Fprintf(w, "<title>%s</title>\n<style>\ntext{fill:#d7dce2;white-space:pre}\n.command{fill:#7ee787}\n"+
		"@media (prefers-reduced-motion:no-preference){\n", html.EscapeString(title))
	for i, l := range lines {
		percent := 100 * float64(l.at) / float64(total)
		fmt.Fprintf(w, "#l%d{animation:k%d %.1fs infinite}"+
			"@keyframes k%d{0%%,%.2f%%{opacity:0}%.2f%%,100%%{opacity:1}}\n",
			i, i, total.Seconds(), i, percent, percent+0.01)
	}
	fmt.Fprintf(w, "}\n</style>\n<rect width='%d' height='%d' rx='8' fill='#161b22'/>\n", width, height)
	row := func(n int, attributes, content string) {
		fmt.Fprintf(w, "<text x='%d' y='%d' xml:space='preserve' %s>%s</text>\n",
			margin, margin+(n+1)*rowHeight-5, attributes, html.EscapeString(content))
	}
	row(0, "class='command'", "$ "+title)
	for i, l := range lines {
		row(i+1, fmt.Sprintf("id='l%d'", i), l.text)
	}
	fmt.Fprintln(w, "</svg>")
}
