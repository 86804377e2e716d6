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

// WriteStackFiles writes all files that components read: keys, tokens, kubeconfigs, audit policy, KWOK stages, the
// kubectl script. A second call replaces the stack's files, except the ServiceAccount key. WriteStackFiles never
// changes the components' data.
func WriteStackFiles(ctx context.Context, plan Plan) error {
	l := plan.StackFolder()
	for _, folder := range l.requiredFolders() {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	if err := writeOptionalCertificates(plan); err != nil {
		return err
	}
	if plan.KubernetesBinaryPath == "" {
		return nil // the stack has no API server
	}
	if err := writeServiceAccountKey(l.serviceAccountKeyFile()); err != nil {
		return err
	}
	if err := writeIdentities(l, plan.APIServerURL()); err != nil {
		return err
	}
	if err := writeAuditPolicy(l); err != nil {
		return err
	}
	if slices.Contains(plan.Components, Kwok) {
		if err := writeKwokStages(ctx, plan); err != nil {
			return err
		}
	}
	return writeKubectlScript(plan)
}

// writeOptionalCertificates writes files that only some stacks need: the certificates of Temporal and of Cluster API's
// webhooks.
func writeOptionalCertificates(plan Plan) error {
	if plan.RequireTemporalTLS {
		if err := WriteTemporalCertificates(plan.StackFolder()); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(ClusterAPINames(), func(name string) bool { return slices.Contains(plan.Components, name) }) {
		return writeClusterAPICertificates(plan.StackFolder())
	}
	return nil
}

// writeKwokStages writes the KWOK stages, which simulate nodes and pods.
func writeKwokStages(ctx context.Context, plan Plan) error {
	stages, err := exec.CommandContext(ctx, plan.KubernetesBinaryPath, "stages").Output()
	if err != nil {
		return fmt.Errorf("print KWOK stages: %w", err)
	}
	if err := os.WriteFile(plan.StackFolder().kwokStagesFile(), stages, 0o600); err != nil {
		return fmt.Errorf("write KWOK stages: %w", err)
	}
	return nil
}

// writeKubectlScript writes a script that runs kubectl with the admin's kubeconfig, for people without kubectl. The
// script sets the kubeconfig in an environment variable, because kubectl finds a plugin only if the plugin's name is
// the first argument. The plugin reads the same variable.
func writeKubectlScript(plan Plan) error {
	l := plan.StackFolder()
	script := fmt.Sprintf(
		"#!/bin/sh\nKUBECACHEDIR=%s KUBECONFIG=%s exec %s kubectl \"$@\"\n",
		quoteForShell(
			l.Path("kubectl-cache"),
		),
		quoteForShell(l.KubeconfigFile(AdminIdentity)),
		quoteForShell(plan.KubernetesBinaryPath),
	)
	if err := os.WriteFile(l.KubectlPath(), []byte(script), 0o700); err != nil {
		return fmt.Errorf("write kubectl script: %w", err)
	}
	return nil
}

func quoteForShell(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// writeAuditPolicy writes the API server's audit policy. The audit log contains the requests of Millwright's processes,
// of people and of tests, without bodies. Requests of Kubernetes' own components are not logged. Benchmarks count the
// requests in the audit log. A watch has two entries: at its start (ResponseStarted) and at its end.
func writeAuditPolicy(l StackFolder) error {
	ours := []string{
		WorkerIdentity,
		BridgeIdentity,
		ProviderIdentity,
		VirtualCloud,
		MCMIdentity,
		ClusterAPIIdentity,
		StarterIdentity,
		AdminIdentity,
		TestIdentity,
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
		err = os.WriteFile(l.auditPolicyFile(), policy, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write audit policy: %w", err)
	}
	return nil
}
