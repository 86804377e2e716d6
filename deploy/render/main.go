// Package main renders the manifests for kustomize (deploy/base, deploy/rbac and deploy/components) from the Helm chart
// in deploy/chart. "make generate" runs this command, so that the manifests always match the chart. The subcommand
// chart writes the Helm chart of a release.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"

	"millwright/process/commandline"
)

const (
	// namespace is the namespace in which kustomize's manifests install Millwright.
	namespace = "millwright"

	// rbacNamespace is the namespace of the roles in deploy/rbac. The namespace is the default of the flag
	// --lease-namespace. deploy/rbac has no bindings for these roles.
	rbacNamespace = "default"

	generatedHeader = "# Rendered from deploy/chart by \"make generate\": change it there.\n"
)

// renderedFile describes one rendered file.
type renderedFile struct {
	path      string // path of the rendered file, relative to the folder deploy
	namespace string
	values    map[string]any
	templates []string // paths of the templates, relative to the chart's folder templates
}

func main() {
	c := &cobra.Command{Use: "render", Short: "Render kustomize's manifests from the Helm chart", Args: cobra.NoArgs}
	deploy := c.PersistentFlags().String("deploy", "..", "the folder deploy of the repository")
	c.RunE = func(*cobra.Command, []string) error { return renderManifests(*deploy, *deploy) }
	c.AddCommand(&cobra.Command{
		Use:   "chart VERSION FOLDER",
		Short: "Write the chart with the version of a release below a folder",
		Args:  cobra.ExactArgs(2),
		RunE:  func(_ *cobra.Command, args []string) error { return writeChart(*deploy, args[0], args[1]) },
	})
	commandline.Main(c)
}

// writeChart writes the chart with a release's version, such as v0.1.0, into the folder to/millwright.
func writeChart(deploy, version, to string) error {
	c, err := readChart(deploy)
	if err != nil {
		return err
	}
	c.Metadata.Version, c.Metadata.AppVersion = strings.TrimPrefix(version, "v"), version
	if err := c.Validate(); err != nil {
		return fmt.Errorf("give the chart the version %s: %w", version, err)
	}
	return chartutil.SaveDir(c, to)
}

// renderManifests loads the chart of the folder deploy and writes the manifests into the folder to.
func renderManifests(deploy, to string) error {
	loaded, err := readChart(deploy)
	if err != nil {
		return err
	}
	all, err := renderedFiles(deploy)
	if err != nil {
		return err
	}
	for _, f := range all {
		text, err := f.render(loaded)
		if err != nil {
			return fmt.Errorf("render %s: %w", f.path, err)
		}
		path := filepath.Join(to, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", f.path, err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", f.path, err)
		}
	}
	return nil
}

// readChart loads the chart from the folder deploy.
func readChart(deploy string) (*chart.Chart, error) {
	log.SetOutput(io.Discard) // suppress the log line of Helm's loader about the symbolic link files/crds
	defer log.SetOutput(os.Stderr)
	c, err := loader.Load(filepath.Join(deploy, "chart"))
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	return c, nil
}

// renderedFiles returns the files to render. The kustomize components for providers use the values of the chart's
// examples and a placeholder image. An overlay replaces the placeholder image.
func renderedFiles(deploy string) ([]renderedFile, error) {
	core := map[string]any{
		"existingConfigMap": "millwright", // kustomize generates this ConfigMap
		"image":             map[string]any{"tag": "dev"},
	}
	clusterAPI := withValue(core, "clusterAPI", map[string]any{"watchFilter": "millwright"})
	all := []renderedFile{
		{"components/bootstrap-tokens/binding.yaml", namespace, core, []string{"tokens.yaml"}},
		{
			"components/pod-monitor/monitor.yaml",
			namespace,
			withValue(core, "podMonitor", map[string]any{"enabled": true}),
			[]string{"podmonitor.yaml"},
		},
		{
			"components/autoscaler-guard/guard.yaml",
			namespace,
			withValue(core, "autoscalerGuard", map[string]any{"namespaces": []any{namespace}}),
			[]string{"autoscaler.yaml"},
		},
		{
			"components/admission/policies.yaml",
			namespace,
			withValue(core, "admission", map[string]any{"enabled": true}),
			[]string{"admission.yaml"},
		},
		{
			"base/roles.yaml",
			namespace,
			core,
			[]string{"rbac/bridge.yaml", "rbac/people.yaml", "rbac/provider.yaml", "rbac/worker.yaml"},
		},
		{"rbac/tokens/role.yaml", rbacNamespace, core, []string{"rbac/tokens.yaml"}},
		{"rbac/cluster-api/roles.yaml", rbacNamespace, clusterAPI, []string{"rbac/clusterapi.yaml"}},
		{"components/cluster-api/bindings.yaml", namespace, clusterAPI, []string{"clusterapi.yaml"}},
	}
	for _, name := range []string{"bridge", "people", "provider", "worker"} {
		all = append(all, renderedFile{"rbac/" + name + ".yaml", rbacNamespace, core, []string{"rbac/" + name + ".yaml"}})
	}
	for _, name := range []string{"bootstrap", "bridge", "flowcontrol", "network", "priority", "worker"} {
		all = append(all, renderedFile{"base/" + name + ".yaml", namespace, core, []string{name + ".yaml"}})
	}
	for _, example := range []string{"incus", "libvirt", "mcm", "virtual"} {
		given, err := readValues(filepath.Join(deploy, "chart", "examples", example+".yaml"))
		if err != nil {
			return nil, err
		}
		providers, isMap := given["providers"].(map[string]any)
		if !isMap || len(providers) != 1 {
			return nil, fmt.Errorf("example %s: has %d providers, want 1", example, len(providers))
		}
		name := slices.Collect(maps.Keys(providers))[0]
		provider, isMap := providers[name].(map[string]any)
		if !isMap {
			return nil, fmt.Errorf("example %s: provider %s has no values", example, name)
		}
		image, err := imageWithoutRegistry(provider)
		if err != nil {
			return nil, fmt.Errorf("example %s: %w", example, err)
		}
		of := withValue(core, "providers", map[string]any{name: withValue(provider, "image", image)})
		all = append(
			all,
			renderedFile{"components/provider-" + name + "/provider.yaml", namespace, of, []string{"providers.yaml"}},
		)
	}
	return all, nil
}

// imageWithoutRegistry returns a provider's image without its registry and path. Overlays replace the placeholder
// image.
func imageWithoutRegistry(provider map[string]any) (map[string]any, error) {
	image, _ := provider["image"].(map[string]any)
	repository, _ := image["repository"].(string)
	if repository == "" {
		return nil, errors.New("the provider has no image.repository")
	}
	return map[string]any{"repository": repository[strings.LastIndexByte(repository, '/')+1:], "tag": "dev"}, nil
}

// withValue returns a copy of the values in which the key has this value.
func withValue(values map[string]any, key string, value any) map[string]any {
	values = maps.Clone(values)
	values[key] = value
	return values
}

// readValues reads a YAML file with values of the chart.
func readValues(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read values: %w", err)
	}
	var found map[string]any
	if err := yaml.UnmarshalStrict(text, &found); err != nil {
		return nil, fmt.Errorf("read values %s: %w", path, err)
	}
	return found, nil
}

func (f renderedFile) render(c *chart.Chart) ([]byte, error) {
	all, err := renderTemplates(c, f.namespace, f.values, nil)
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, name := range f.templates {
		text := tidyYAML(all[name])
		if text == "" {
			return nil, fmt.Errorf("the template %s gives nothing", name)
		}
		parts = append(parts, text)
	}
	return []byte(generatedHeader + strings.Join(parts, "---\n")), nil
}

// renderTemplates renders a chart and returns the text of each template, by the template's path below the folder
// templates. If cluster is nil, Helm's default capabilities describe the API server.
func renderTemplates(
	c *chart.Chart,
	in string,
	given map[string]any,
	cluster *chartutil.Capabilities,
) (map[string]string, error) {
	release := chartutil.ReleaseOptions{Name: "millwright", Namespace: in, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, given, release, cluster)
	if err != nil {
		return nil, fmt.Errorf("check the values: %w", err)
	}
	texts, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	named := map[string]string{}
	for path, text := range texts {
		named[strings.TrimPrefix(path, c.Name()+"/templates/")] = text
	}
	return named, nil
}

// tidyYAML removes the blanks that templates leave: spaces at the ends of lines, empty lines, and a separator before
// the first document.
func tidyYAML(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if line == "" || out.Len() == 0 && line == "---" {
			continue
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}
