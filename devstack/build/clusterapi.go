package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ClusterAPIFolder is the folder of the nested module that pins the versions of Cluster API, and the name of the cache
// entries with Cluster API's programs. A folder with a minor version in its name has an older version.
const ClusterAPIFolder = "clusterapi"

// clusterAPIRelease is a minor version of Cluster API that the stack can run.
type clusterAPIRelease struct {
	minor      string // such as 1.14
	folder     string // folder of the nested module, below devstack, and name of the cache entry
	coreFolder string // folder of core's main package in the module of Cluster API
}

// clusterAPIReleases returns the releases, newest first. Source of their number: Cluster API supports three minor
// versions.
func clusterAPIReleases() []clusterAPIRelease {
	return []clusterAPIRelease{
		{"1.14", ClusterAPIFolder, "core"},
		{"1.13", ClusterAPIFolder + "-1.13", "."},
		{"1.12", ClusterAPIFolder + "-1.12", "."},
	}
}

// ClusterAPIMinorVersions returns the minor versions of Cluster API that the stack can run, newest first.
func ClusterAPIMinorVersions() (minors []string) {
	for _, r := range clusterAPIReleases() {
		minors = append(minors, r.minor)
	}
	return minors
}

// findClusterAPIRelease returns the release of a minor version; an empty minor version means the newest.
func findClusterAPIRelease(minor string) (clusterAPIRelease, error) {
	for _, r := range clusterAPIReleases() {
		if minor == "" || r.minor == minor {
			return r, nil
		}
	}
	return clusterAPIRelease{}, fmt.Errorf(
		"no stack has Cluster API %q: the versions are %s", minor, strings.Join(ClusterAPIMinorVersions(), ", "),
	)
}

// These are the file names of Cluster API's programs in the folder that ClusterAPIProgramsFolder returns.
const (
	ClusterAPICore         = "capi-core"          // Cluster, MachineDeployment, MachineSet, Machine and others
	ClusterAPIBootstrap    = "capi-bootstrap"     // the kubeadm bootstrap provider
	ClusterAPIControlPlane = "capi-control-plane" // the kubeadm control plane provider
	ClusterAPIDev          = "capi-dev"           // the development provider, which keeps its workload clusters in memory
)

// Modules of Cluster API.
const (
	clusterAPIModule        = "sigs.k8s.io/cluster-api"
	clusterAPITestModule    = "sigs.k8s.io/cluster-api/test"
	controllerRuntimeModule = "sigs.k8s.io/controller-runtime"
)

// clusterAPIProgram is a main package of Cluster API. The go.mod of devstack/clusterapi names each main package as a
// tool.
type clusterAPIProgram struct {
	name       string
	module     string
	mainFolder string // folder of the main package in the module; the subfolder config has the manifests
}

func (r clusterAPIRelease) programs() []clusterAPIProgram {
	return []clusterAPIProgram{
		{ClusterAPICore, clusterAPIModule, r.coreFolder},
		{ClusterAPIBootstrap, clusterAPIModule, "bootstrap/kubeadm"},
		{ClusterAPIControlPlane, clusterAPIModule, "controlplane/kubeadm"},
		{ClusterAPIDev, clusterAPITestModule, "infrastructure/docker"},
	}
}

// sourceEdit replaces a text in one file of a published module.
type sourceEdit struct {
	module, file     string
	oldText, newText string
	occurrenceCount  int // how often the file must contain the old text; any other number is an error
}

// loopbackEdits make Cluster API's programs listen on loopback addresses only. Upstream binds webhooks, workload
// clusters and the debug server of the development provider to all addresses, and has no flag to change this. Workload
// clusters use the same ports in every stack. Each stack therefore has its own address for workload clusters, which the
// variable POD_IP contains.
func (r clusterAPIRelease) loopbackEdits() []sourceEdit {
	const mux = "infrastructure/inmemory/pkg/server/mux.go"
	debugServers, workloadClusters := 1, 2
	if r.minor == "1.12" { // the debug server of 1.12 has the host already
		debugServers, workloadClusters = 0, 1
	}
	return []sourceEdit{
		{
			controllerRuntimeModule,
			"pkg/webhook/server.go",
			`net.JoinHostPort(s.Options.Host, `,
			`net.JoinHostPort("127.0.0.1", `,
			2,
		},
		{
			clusterAPITestModule,
			mux,
			`net.Listen("tcp", fmt.Sprintf(":%d", options.DebugPort))`,
			`net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(options.DebugPort)))`,
			debugServers,
		},
		{
			clusterAPITestModule,
			mux,
			`net.Listen("tcp", fmt.Sprintf(":%d", wcl.Port()))`,
			`net.Listen("tcp", wcl.HostPort())`,
			workloadClusters,
		},
	}
}

// applyTo edits the copy of the module in a folder.
func (e sourceEdit) applyTo(folder string) error {
	file := filepath.Join(folder, e.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("edit %s: %w", e.module, err)
	}
	if n := strings.Count(string(text), e.oldText); n != e.occurrenceCount {
		return fmt.Errorf(
			"edit %s: %s has %d times %q, not %d times: review loopbackEdits for this version",
			e.module,
			e.file,
			n,
			e.oldText,
			e.occurrenceCount,
		)
	}
	return os.WriteFile(file, []byte(strings.ReplaceAll(string(text), e.oldText, e.newText)), 0o644)
}

// ClusterAPIProgramsFolder returns a folder with Cluster API's programs of a minor version; empty: the newest. The
// folder config/NAME has upstream's CustomResourceDefinitions and webhook configurations of the program NAME, and the
// kustomization.yaml with the labels of the CustomResourceDefinitions. If the cache lacks the folder,
// ClusterAPIProgramsFolder builds the programs, which takes minutes. A second call takes milliseconds.
func ClusterAPIProgramsFolder(ctx context.Context, repo, minor string, progress io.Writer) (string, error) {
	release, err := findClusterAPIRelease(minor)
	if err != nil {
		return "", err
	}
	module := filepath.Join(repo, "devstack", release.folder)
	flags, err := goBuildFlags(release.folder, module)
	if err != nil {
		return "", err
	}
	key, err := cacheKey(ctx, module, flags, nil)
	if err != nil {
		return "", fmt.Errorf("compute cache key of Cluster API's programs: %w", err)
	}
	recipe := fmt.Sprintf("%s %v %v", key, release.programs(), release.loopbackEdits())
	return CachedFolder(ctx, release.folder, recipe, progress, func(dir string) error {
		_, _ = fmt.Fprintln(
			progress,
			"building Cluster API "+release.minor+": core, kubeadm providers and development provider; takes five minutes or so on two cores, once",
		)
		began := time.Now()
		edited, err := os.MkdirTemp("", "millwright-clusterapi-")
		if err != nil {
			return fmt.Errorf("make room for edited modules: %w", err)
		}
		err = errors.Join(release.buildPrograms(ctx, module, edited, dir, flags, progress), os.RemoveAll(edited))
		if err == nil {
			_, _ = fmt.Fprintf(progress, "built them in %s\n", time.Since(began).Round(time.Second))
		}
		return err
	})
}

// ClusterctlPath returns the path of clusterctl, Cluster API's command line, in the version of devstack/clusterapi.
// Only tests call ClusterctlPath. If the cache lacks clusterctl, ClusterctlPath builds the program, which takes a
// minute. A second call takes milliseconds.
func ClusterctlPath(ctx context.Context, repo string, progress io.Writer) (string, error) {
	const name = "clusterctl"
	module := filepath.Join(repo, "devstack", ClusterAPIFolder)
	flags, err := goBuildFlags(name, module)
	if err != nil {
		return "", err
	}
	key, err := cacheKey(ctx, module, flags, nil)
	if err != nil {
		return "", fmt.Errorf("compute cache key of %s: %w", name, err)
	}
	dir, err := CachedFolder(ctx, name, key, progress, func(dir string) error {
		arguments := slices.Concat(
			[]string{"build", "-v", "-o", filepath.Join(dir, name)},
			flags,
			[]string{clusterAPIModule + "/cmd/" + name},
		)
		return runGoCommand(ctx, module, name, nil, arguments, progress)
	})
	return filepath.Join(dir, name), err
}

// buildPrograms fills dir, the folder of ClusterAPIProgramsFolder. The folder edited keeps the edited copies
// of modules.
func (r clusterAPIRelease) buildPrograms(
	ctx context.Context,
	module, edited, dir string,
	flags []string,
	progress io.Writer,
) error {
	if err := runGoCommand(ctx, module, ClusterAPIFolder, nil, []string{"mod", "download"}, progress); err != nil {
		return err
	}
	goMod, err := r.copyEditedModules(ctx, module, edited)
	if err != nil {
		return err
	}
	for _, p := range r.programs() {
		published, err := moduleFolder(ctx, module, p.module)
		if err != nil {
			return err
		}
		if err := copyConfig(
			filepath.Join(published, p.mainFolder, "config"),
			filepath.Join(dir, "config", p.name),
		); err != nil {
			return fmt.Errorf("copy manifests of %s: %w", p.name, err)
		}
		arguments := slices.Concat(
			[]string{"build", "-v", "-modfile", goMod, "-o", filepath.Join(dir, p.name)},
			flags,
			[]string{path.Join(p.module, p.mainFolder)},
		)
		if err := runGoCommand(ctx, module, p.name, nil, arguments, progress); err != nil {
			return err
		}
	}
	return nil
}

// copyEditedModules makes edited copies of the modules in loopbackEdits, below the folder edited. copyEditedModules
// returns the path of a go.mod that replaces these modules with the copies.
func (r clusterAPIRelease) copyEditedModules(ctx context.Context, module, edited string) (goMod string, err error) {
	text, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("edit modules: %w", err)
	}
	for _, name := range []string{controllerRuntimeModule, clusterAPITestModule} {
		published, err := moduleFolder(ctx, module, name)
		if err != nil {
			return "", err
		}
		folder := filepath.Join(edited, filepath.Base(name))
		if err := os.CopyFS(folder, os.DirFS(published)); err != nil {
			return "", fmt.Errorf("copy module %s: %w", name, err)
		}
		text = fmt.Appendf(text, "\nreplace %s => %s\n", name, folder)
		for _, e := range r.loopbackEdits() {
			if e.module != name {
				continue
			}
			if err := e.applyTo(folder); err != nil {
				return "", err
			}
		}
	}
	sum, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("edit modules: %w", err)
	}
	goMod = filepath.Join(edited, "go.mod")
	return goMod, errors.Join(os.WriteFile(goMod, text, 0o644), os.WriteFile(filepath.Join(edited, "go.sum"), sum, 0o644))
}

// moduleFolder returns the folder of a downloaded module that devstack/clusterapi requires.
func moduleFolder(ctx context.Context, module, name string) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", name)
	command.Dir = module
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", name, err)
	}
	folder := strings.TrimSpace(string(out))
	if folder == "" {
		return "", fmt.Errorf("find module %s: it is not downloaded", name)
	}
	return folder, nil
}

// copyConfig copies CRDs and webhook manifests from a program's folder config into the folder to.
func copyConfig(config, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	definitions, err := filepath.Glob(filepath.Join(config, "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	files := map[string]string{
		filepath.Join(config, "crd", "kustomization.yaml"): "kustomization.yaml",
		filepath.Join(config, "webhook", "manifests.yaml"): "webhooks.yaml",
	}
	for _, path := range definitions {
		files[path] = filepath.Base(path)
	}
	for from, name := range files {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
