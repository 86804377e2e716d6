//go:build integration && upgrade

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"millwright/devstack/build"
)

// versionBuild has the paths of worker and bridge of another version.
type versionBuild struct {
	workerScript, bridgeScript string // paths of scripts that run worker and bridge
	hasInstallationPrefix      bool   // the version's task queues and workflow IDs begin with the name of the installation
}

// buildVersion builds worker and bridge of a commit below a folder.
func buildVersion(ctx context.Context, commit, folder string) (o versionBuild, err error) {
	repo, err := build.FindRepo("")
	if err != nil {
		return o, err
	}
	source := filepath.Join(folder, "source")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return o, err
	}
	archive := fmt.Sprintf("git -C %q archive %q | tar -x -C %q", repo, commit, source)
	if out, err := exec.CommandContext(ctx, "bash", "-c", "set -o pipefail; "+archive).CombinedOutput(); err != nil {
		return o, fmt.Errorf("check out %s: %w: %s", commit, err, out)
	}
	compile := exec.CommandContext(ctx, "go", "build", "-o", folder+string(filepath.Separator), "./worker", "./k8sbridge")
	compile.Dir = source
	if out, err := compile.CombinedOutput(); err != nil {
		return o, fmt.Errorf("build %s: %w: %s", commit, err, out)
	}
	if o.workerScript, err = writeWrapperScript(folder, build.WorkerFolder); err != nil {
		return o, err
	}
	if o.bridgeScript, err = writeWrapperScript(folder, build.BridgeFolder); err != nil {
		return o, err
	}
	help, err := exec.CommandContext(ctx, filepath.Join(folder, build.BridgeFolder), "--help").CombinedOutput()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		return o, err
	}
	o.hasInstallationPrefix = strings.Contains(string(help), "-cluster-name")
	return o, nil
}

// writeWrapperScript writes a script that runs a binary without the flags that the binary does not have. The stack
// passes the flags of the current version to the script.
func writeWrapperScript(folder, name string) (string, error) {
	path := filepath.Join(folder, name+".sh")
	text := fmt.Sprintf(`#!/usr/bin/env bash
binary=%q
known=$("$binary" --help 2>&1)
arguments=()
while [ $# -gt 1 ]; do
	if grep -Eq -- "^ +--?${1#--} " <<<"$known"; then arguments+=("$1" "$2"); fi
	shift 2
done
exec "$binary" "${arguments[@]}"
`, filepath.Join(folder, name))
	return path, os.WriteFile(path, []byte(text), 0o755)
}
