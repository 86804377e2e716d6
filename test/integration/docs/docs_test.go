// Tier: test-all. The package runs the commands of all pages.

//go:build integration

// Package docs shows that the commands in the pages have the documented results. The package runs the blocks of each
// page in order, as a reader would. test/pages defines the format of a page. The stack has free ports, so the
// environment has the address of Temporal, and the address of the cloud that a page starts.
package docs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
	"millwright/test/pages"
)

var testRig *rig.Rig

func TestMain(m *testing.M) {
	os.Exit(rig.MainOnSharedStack(m, func(up *rig.Rig) { testRig = up }))
}

// slowPages are the pages with commands that take long. Each page of slowPages uses its own machines. The pages of
// slowPages run at the same time, after all other pages, because one of them kills the worker.
var slowPages = []string{"docs/runbook.md", "docs/tutorials/ten-minutes.md"}

// pagesWithOwnProcesses are pages that start their own worker and bridge. The worker and the bridge of the stack are
// stopped before these pages run.
var pagesWithOwnProcesses = []string{"docs/how-to/own-cluster.md"}

func TestCommandsInTheDocumentsRun(t *testing.T) {
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	_, err = build.Products(
		t.Context(),
		repo,
		os.Stderr,
		build.StarterFolder,
		build.DevstackFolder,
		build.WorkerFolder,
		build.BridgeFolder,
	)
	require.NoError(t, err)
	all, err := pages.ListPages(repo)
	require.NoError(t, err)
	for _, name := range all {
		if blocks := runnableBlocks(t, repo, name); len(blocks) > 0 && !slices.Contains(slowPages, name) &&
			!slices.Contains(pagesWithOwnProcesses, name) {
			t.Run(name, func(t *testing.T) { runPageCommands(t, repo, name, blocks) })
		}
	}
	t.Run("long", func(t *testing.T) {
		for _, name := range slowPages {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				runPageCommands(t, repo, name, runnableBlocks(t, repo, name))
			})
		}
	})
	for _, name := range []string{component.Bridge, component.Worker} {
		require.NoError(t, testRig.Stack.StopComponent(t.Context(), name))
	}
	for _, name := range pagesWithOwnProcesses {
		deleteInstallationLease(t)
		t.Run(name, func(t *testing.T) { runPageCommands(t, repo, name, runnableBlocks(t, repo, name)) })
	}
	deleteInstallationLease(t)
}

// deleteInstallationLease deletes the Lease that has the installation's name, because the next installation may have
// another name.
func deleteInstallationLease(t *testing.T) {
	t.Helper()
	leases := testRig.Kube.CoordinationV1().Leases(metav1.NamespaceDefault)
	require.NoError(t, leases.Delete(t.Context(), "millwright-worker", metav1.DeleteOptions{}))
}

// runnableBlocks returns the blocks of a page that can be run.
func runnableBlocks(t *testing.T, repo, name string) []pages.Block {
	t.Helper()
	blocks, err := pages.ReadBlocks(filepath.Join(repo, filepath.FromSlash(name)))
	require.NoError(t, err)
	return slices.DeleteFunc(blocks, func(b pages.Block) bool { return b.SkipReason != "" })
}

// runPageCommands runs the commands of a page.
func runPageCommands(t *testing.T, repo, name string, blocks []pages.Block) {
	t.Helper()
	s := newShell(t, repo)
	for _, b := range blocks {
		for _, c := range b.Commands {
			s.runCommand(t, name, c)
		}
	}
}

// shell runs the commands of one page, each in a new bash. Each bash gets the variables of the bash before it.
type shell struct {
	folder        string // folder that represents the reader's clone of the repository
	variablesFile string // file with the variables for the next bash
	env           []string
}

func newShell(t *testing.T, repo string) *shell {
	t.Helper()
	s := &shell{folder: t.TempDir(), variablesFile: filepath.Join(t.TempDir(), "environment")}
	entries, err := os.ReadDir(repo)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != ".devstack" && e.Name() != ".git" {
			require.NoError(t, os.Symlink(filepath.Join(repo, e.Name()), filepath.Join(s.folder, e.Name())))
		}
	}
	require.NoError(t, os.Symlink(testRig.Stack.Dir(), filepath.Join(s.folder, ".devstack")))
	// the stack's folder contains the script kubectl
	path := filepath.Join(s.folder, "bin") + string(filepath.ListSeparator) + testRig.Stack.Dir()
	s.env = append(
		os.Environ(),
		"PATH="+path+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"KUBECONFIG="+testRig.Stack.KubeconfigPath(component.AdminIdentity),
		"TEMPORAL_CONFIG_FILE="+os.DevNull,
		"TEMPORAL_ADDRESS="+testRig.Stack.TemporalAddress(),
		"CLOUD_ADDRESS="+findFreeAddress(t),
	)
	return s
}

// findFreeAddress returns an address of this computer on which no process listens now.
func findFreeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

func (s *shell) runCommand(t *testing.T, page string, c pages.Command) {
	t.Helper()
	where := fmt.Sprintf("%s:%d", page, c.Line)
	begin := time.Now()
	if !c.IsRepeated {
		out, err := s.runScript(t, c.Text)
		t.Logf("%s (%.1fs)\n%s\n%s", where, time.Since(begin).Seconds(), c.Text, out)
		require.NoError(t, err, "%s\n%s\n%s", where, c.Text, out)
		require.Empty(t, c.MissingLine(out), "%s: this line is not in what the command printed:\n%s", where, out)
		return
	}
	rig.Eventually(t, where+": the command prints what the page says", func() (bool, any) {
		out, err := s.runScript(t, c.Text)
		missing := c.MissingLine(out)
		if missing == "" && err == nil {
			t.Logf("%s (%.1fs)\n%s\n%s", where, time.Since(begin).Seconds(), c.Text, out)
			return true, nil
		}
		return false, fmt.Sprintf("%v\nno line %q in\n%s", err, missing, out)
	})
}

// runScript runs a script and returns its output, including standard error. Background processes of the script are
// killed when the page ends.
func (s *shell) runScript(t *testing.T, script string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // this timeout only stops a command that does not end
	defer cancel()
	// bash runs the trap at the end of the script, also after an error.
	c := exec.CommandContext(
		ctx,
		"bash",
		"-euo",
		"pipefail",
		"-c",
		"trap 'env -0 > \"$MILLWRIGHT_STATE\"' EXIT; set -a\n"+script,
	)
	c.Dir, c.Env = s.folder, slices.Concat(s.env, []string{"MILLWRIGHT_STATE=" + s.variablesFile, "PWD=" + s.folder})
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.WaitDelay = time.Second // background processes of the script may hold the output pipe open
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if c.Process != nil {
		group := c.Process.Pid
		t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGTERM) })
	}
	if state, readErr := os.ReadFile(s.variablesFile); readErr == nil {
		s.env = strings.Split(strings.TrimSuffix(string(state), "\x00"), "\x00")
	}
	return out.String(), err
}
