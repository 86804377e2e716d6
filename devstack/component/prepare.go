package component

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Prepare writes all files that components read: keys, tokens, kubeconfigs, audit policy, stages, the kubectl script. A
// second call replaces them, except for what must be kept: the ServiceAccount key, and all data.
func Prepare(ctx context.Context, plan Plan) error {
	l := plan.Layout()
	for _, folder := range l.folders() {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	if err := prepareExtras(plan); err != nil {
		return err
	}
	if plan.Kubectl == "" {
		return nil // only Temporal
	}
	if err := writeServiceAccountKey(l.serviceAccountKey()); err != nil {
		return err
	}
	if err := writeIdentities(l, plan.APIServer()); err != nil {
		return err
	}
	if err := writeAuditPolicy(l); err != nil {
		return err
	}
	if slices.Contains(plan.Components, Kwok) {
		if err := writeStages(ctx, plan); err != nil {
			return err
		}
	}
	return writeKubectl(plan)
}

// prepareExtras writes what only stacks with more than the usual need.
func prepareExtras(plan Plan) error {
	if plan.TemporalTLS {
		if err := WriteTemporalCertificates(plan.Layout()); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(ClusterAPI(), func(name string) bool { return slices.Contains(plan.Components, name) }) {
		return writeClusterAPICertificates(plan.Layout())
	}
	return nil
}

// writeStages writes how KWOK plays nodes and pods.
func writeStages(ctx context.Context, plan Plan) error {
	stages, err := exec.CommandContext(ctx, plan.Kubectl, "stages").Output()
	if err != nil {
		return fmt.Errorf("print KWOK stages: %w", err)
	}
	if err := os.WriteFile(plan.Layout().stages(), stages, 0o600); err != nil {
		return fmt.Errorf("write KWOK stages: %w", err)
	}
	return nil
}

// writeKubectl writes a script that runs kubectl with the admin's kubeconfig, for people without kubectl. The
// kubeconfig is in the environment, and no flag: kubectl looks for a plugin only if the plugin's name comes first, and
// the plugin reads the environment, too.
func writeKubectl(plan Plan) error {
	l := plan.Layout()
	script := fmt.Sprintf("#!/bin/sh\nKUBECACHEDIR=%s KUBECONFIG=%s exec %s kubectl \"$@\"\n",
		quote(l.Path("kubectl-cache")), quote(l.Kubeconfig(Admin)), quote(plan.Kubectl))
	if err := os.WriteFile(l.Kubectl(), []byte(script), 0o700); err != nil {
		return fmt.Errorf("write kubectl script: %w", err)
	}
	return nil
}

// quote quotes a word for the shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// writeAuditPolicy writes the API server's audit policy. It records, without bodies, the requests of our own processes,
// people and tests to the API server, and none of Kubernetes' own components: the requests per machine are counted from
// it. A watch is recorded twice, when it starts (ResponseStarted) and when it ends.
func writeAuditPolicy(l Layout) error {
	ours := []string{
		WorkerIdentity,
		BridgeIdentity,
		ProviderIdentity,
		VirtualCloud,
		MCMIdentity,
		ClusterAPIIdentity,
		StarterUser,
		Admin,
		Test,
	}
	policy, err := yaml.Marshal(map[string]any{
		"apiVersion": "audit.k8s.io/v1",
		"kind":       "Policy",
		"omitStages": []string{"RequestReceived"},
		"rules": []map[string]any{
			{"level": "None", "nonResourceURLs": []string{"/healthz*", "/livez*", "/readyz*"}},
			{"level": "Metadata", "users": ours},
			{"level": "None"},
		},
	})
	if err == nil {
		err = os.WriteFile(l.auditPolicy(), policy, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write audit policy: %w", err)
	}
	return nil
}
