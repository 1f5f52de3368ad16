package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	modulePath       = "github.com/keyedqueue/workqueue/peers/kubernetes"
	kubernetesModule = "k8s.io/kubernetes"
	apiServer        = "kube-apiserver"
	kubeManager      = "kube-controller-manager"
	repositoryDir    = "../.." // Seen from the module's directory.
)

// A variant is this module with one of the two queues. Its go.mod is a copy, so that the go command may
// complete the copy's checksums for what only tests need, and the committed files stay as they are.
type variant struct {
	name    string
	modFile string
}

var (
	stock   = variant{"stock", "stock.mod"}
	swapped = variant{"swapped", "swap.mod"}
)

func (v variant) String() string { return v.name }

// variantsNamed returns the variants of a list such as "stock,swapped", in its order.
func variantsNamed(list string) ([]variant, error) {
	var found []variant
	for name := range strings.SplitSeq(list, ",") {
		switch name {
		case stock.name:
			found = append(found, stock)
		case swapped.name:
			found = append(found, swapped)
		default:
			return nil, fmt.Errorf("there is no variant %q: want %s or %s, or both with a comma", name, stock, swapped)
		}
	}
	return found, nil
}

// goCommand returns a go command that builds or lists the variant.
func (v variant) goCommand(ctx context.Context, subcommand string, args ...string) *exec.Cmd {
	// Without trimpath the go command cannot use what another checkout has compiled.
	line := append([]string{subcommand, "-modfile=" + v.modFile, "-mod=mod", "-trimpath"}, args...)
	cmd := exec.CommandContext(ctx, "go", line...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	cmd.Stderr = os.Stderr
	return cmd
}

// prepare writes the variant's go.mod and what else it needs.
func (v variant) prepare(ctx context.Context) error {
	if err := inModule(ctx); err != nil {
		return err
	}
	if v == swapped {
		return swap(ctx)
	}
	for from, to := range map[string]string{"go.mod": "stock.mod", "go.sum": "stock.sum"} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// inModule returns an error if the working directory is not this module's.
func inModule(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-m")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != modulePath {
		return fmt.Errorf("run this with run.sh, in the directory of the module %s", modulePath)
	}
	return nil
}

// swap runs cmd/swap on this module with the queue of this checkout.
func swap(ctx context.Context) error {
	program, err := filepath.Abs("bin/swap")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(repositoryDir, "cmd", "swap"), "-o",
		program, ".")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	cmd = exec.CommandContext(ctx, program, "-replace", repositoryDir)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	fmt.Println(strings.ReplaceAll(first, mustAbs(repositoryDir), "this checkout"))
	return nil
}

func mustAbs(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err) // The working directory has gone.
	}
	return abs
}

// version returns the version of a module that the variants build with.
func version(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-json", module)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	var m struct {
		Version string
		Replace *struct{ Version string }
	}
	if err := json.Unmarshal(out, &m); err != nil {
		return "", err
	}
	if m.Replace != nil {
		return m.Replace.Version, nil
	}
	return m.Version, nil
}

// binary is where a program of the variant is.
func (v variant) binary(name string) string { return mustAbs(filepath.Join("bin", v.name, name)) }

// servers are the programs of a control plane.
var servers = []string{apiServer, kubeManager}

// buildServers builds programs of the control plane with the variant's queue.
func (v variant) buildServers(ctx context.Context, programs []string) error {
	if err := v.prepare(ctx); err != nil {
		return err
	}
	release, err := version(ctx, kubernetesModule)
	if err != nil {
		return err
	}
	began := time.Now()
	args := []string{"-ldflags=-w -X k8s.io/component-base/version.gitVersion=" + release, "-o",
		filepath.Join("bin", v.name) + string(filepath.Separator)}
	for _, name := range programs {
		args = append(args, kubernetesModule+"/cmd/"+name)
	}
	cmd := v.goCommand(ctx, "build", args...)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	if err := v.checkQueue(ctx, programs); err != nil {
		return err
	}
	fmt.Printf("%s: %s %s built in %s\n", v, strings.Join(programs, " and "), release,
		time.Since(began).Round(time.Second))
	return nil
}

// checkQueue returns an error if one of the variant's programs was built with the other variant's queue.
func (v variant) checkQueue(ctx context.Context, programs []string) error {
	for _, name := range programs {
		cmd := exec.CommandContext(ctx, "go", "version", "-m", v.binary(name))
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
		ours := bytes.Contains(out, []byte("\tgithub.com/keyedqueue/workqueue\t"))
		if ours != (v == swapped) {
			return fmt.Errorf("%s of the variant %s has the wrong queue: ours is linked: %t", name, v, ours)
		}
	}
	return nil
}

func build(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	list := flags.String("variants", "stock,swapped", "what to build")
	if err := flags.Parse(args); err != nil {
		return err
	}
	_, err := serversOf(ctx, *list, true)
	return err
}

// serversOf returns the variants of a list, after it has built their servers, if build is set, and printed
// the versions. Without build, the servers of an earlier build are used.
func serversOf(ctx context.Context, list string, build bool) ([]variant, error) {
	variants, err := variantsNamed(list)
	if err != nil {
		return nil, err
	}
	for _, v := range variants {
		if build {
			err = v.buildServers(ctx, servers)
		} else {
			err = v.checkQueue(ctx, servers)
		}
		if err != nil {
			return nil, err
		}
	}
	return variants, printVersions(ctx)
}
