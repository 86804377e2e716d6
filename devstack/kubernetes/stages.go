package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"strings"

	nodefast "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	nodeheartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	podfast "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

//go:embed stages/*.yaml
var ownStages embed.FS

// stages prints one stream of YAML documents for kwok --config: stages of KWOK's own module without changes, KWOK's
// node stages with repairs, and Millwright's own stages (the files in stages/).
func stages() int {
	documents := []string{
		podfast.DefaultPodReady,
		podfast.DefaultPodComplete,
	}
	initialize, err := nodeInitialize(nodefast.DefaultNodeInit)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	heartbeat, err := nodeHeartbeat(nodeheartbeat.DefaultNodeHeartbeatWithLease)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	documents = append(documents, initialize, heartbeat)
	files, err := fs.Glob(ownStages, "stages/*.yaml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, name := range files {
		text, err := ownStages.ReadFile(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		documents = append(documents, string(text))
	}
	fmt.Println(strings.Join(documents, "\n---\n"))
	return 0
}

// nodeInitialize repairs KWOK's node stage in two ways. A node that a test has made not Ready
// (stages/node-not-ready.yaml) must not become Ready again at once. A condition Ready that changes now must not have
// the node's creation time as its transition time, because the health clock counts from the transition time.
func nodeInitialize(upstream string) (string, error) {
	const (
		match      = "    matchExpressions:\n"
		transition = "{{ $lastTransitionTime := or .metadata.creationTimestamp $now }}"
	)
	if !strings.Contains(upstream, match) || !strings.Contains(upstream, transition) {
		return "", fmt.Errorf(
			"stage node-initialize of this KWOK version has another form: review devstack/kubernetes/stages.go",
		)
	}
	healed := strings.Replace(upstream, match, match+
		`    - key: '.metadata.labels["node-not-ready.stage.kwok.x-k8s.io"]'
      operator: 'NotIn'
      values:
      - 'true'
`, 1)
	return strings.Replace(healed, transition, "{{ $lastTransitionTime := $now }}", 1), nil
}

// nodeHeartbeat repairs KWOK's heartbeat of a node, which comes each ten minutes. Like a kubelet's heartbeat, it must
// not change the transition times of the conditions; KWOK would set them to the node's creation time. The template is a
// strategic merge patch, so a field that it leaves out does not change.
func nodeHeartbeat(upstream string) (string, error) {
	const transition = "        lastTransitionTime: {{ $lastTransitionTime | Quote }}\n"
	if strings.Count(upstream, transition) != 1 {
		return "", fmt.Errorf(
			"stage node-heartbeat-with-lease of this KWOK version has another form: review devstack/kubernetes/stages.go",
		)
	}
	return strings.Replace(upstream, transition, "", 1), nil
}
