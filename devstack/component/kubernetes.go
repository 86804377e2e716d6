package component

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// kubernetesArguments returns the arguments of the multi-call binary for a component: the component's name and its
// flags.
func (p Plan) kubernetesArguments(name string) []string {
	switch name {
	case Etcd:
		return p.etcdFlags()
	case APIServer:
		return p.apiServerFlags()
	case ControllerManager:
		return p.controllerManagerFlags()
	case Scheduler:
		return p.schedulerFlags()
	default:
		return p.kwokFlags()
	}
}

func (p Plan) etcdURL() string { return "http://" + Address(p.Ports[Etcd]) }

// APIServerURL returns the URL of the API server.
func (p Plan) APIServerURL() string { return "https://" + Address(p.Ports[APIServer]) }

func (p Plan) etcdFlags() []string {
	peer := "http://" + Address(p.Ports[etcdPeerPortName])
	return []string{
		Etcd,
		"--name=devstack",
		"--data-dir=" + p.StackFolder().Path(Etcd),
		"--listen-client-urls=" + p.etcdURL(),
		"--advertise-client-urls=" + p.etcdURL(),
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=devstack=" + peer,
		"--unsafe-no-fsync", // data survive a killed process, but not a crash of the computer
		"--log-level=warn",
	}
}

func (p Plan) apiServerFlags() []string {
	l := p.StackFolder()
	return []string{
		APIServer,
		"--etcd-servers=" + p.etcdURL(),
		"--bind-address=" + loopbackAddress,
		"--secure-port=" + strconv.Itoa(p.Ports[APIServer]),
		// The API server refuses to advertise a loopback address. The flag names an address from the range that is
		// reserved for documentation. With the reconciler type none, the API server writes no endpoints.
		"--advertise-address=192.0.2.2",
		"--endpoint-reconciler-type=none",
		"--cert-dir=" + l.Path("pki"),
		"--token-auth-file=" + l.tokensFile(),
		"--authorization-mode=Node,RBAC",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.serviceAccountKeyFile(),
		"--service-account-signing-key-file=" + l.serviceAccountKeyFile(),
		"--audit-policy-file=" + l.auditPolicyFile(),
		"--audit-log-path=" + l.AuditLogFile(),
		"--audit-log-mode=batch", // in batch mode, requests do not wait for the log file
		"--audit-log-batch-buffer-size=100000",
		"--audit-log-maxsize=100000", // in MB; with this size the log never rotates, so request counts are complete
	}
}

func (p Plan) controllerManagerFlags() []string {
	l := p.StackFolder()
	return []string{
		ControllerManager,
		"--kubeconfig=" + l.KubeconfigFile(ControllerManager),
		"--bind-address=" + loopbackAddress,
		"--secure-port=" + strconv.Itoa(p.Ports[ControllerManager]),
		"--cert-dir=" + l.Path("pki", ControllerManager),
		"--authentication-skip-lookup=true", // the stack has no client CA to look up
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + l.serviceAccountKeyFile(),
		"--root-ca-file=" + l.APIServerCertificateFile(),
		"--kube-api-qps=500", // with the default of 20, the controllers need 8 s until each has a token of its own
		"--kube-api-burst=1000",
		"--node-monitor-period=2s",
		fmt.Sprintf("--node-monitor-grace-period=%s", p.nodeLeaseTimes().gracePeriod),
		"--controllers=" + strings.Join(enabledControllers(), ","), // a second flag --controllers adds controllers
	}
}

// enabledControllers are the controllers that machines, pods, volumes and disruption budgets need. The controller
// manager starts faster with fewer controllers.
func enabledControllers() []string {
	return []string{
		"clusterrole-aggregation-controller",
		"daemonset-controller",
		"deployment-controller",
		"disruption-controller",
		"garbage-collector-controller",
		"job-controller",
		"namespace-controller",
		"node-lifecycle-controller",
		"persistentvolume-attach-detach-controller",
		"persistentvolume-binder-controller",
		"persistentvolume-protection-controller",
		"persistentvolumeclaim-protection-controller",
		"pod-garbage-collector-controller",
		"replicaset-controller",
		"serviceaccount-controller",
		"statefulset-controller",
		"taint-eviction-controller",
	}
}

func (p Plan) schedulerFlags() []string {
	l := p.StackFolder()
	return []string{
		Scheduler,
		"--kubeconfig=" + l.KubeconfigFile(Scheduler),
		"--bind-address=" + loopbackAddress,
		"--secure-port=" + strconv.Itoa(p.Ports[Scheduler]),
		"--cert-dir=" + l.Path("pki", Scheduler),
		"--authentication-skip-lookup=true",
		"--leader-elect=false",
	}
}

func (p Plan) kwokFlags() []string {
	l := p.StackFolder()
	return []string{
		Kwok,
		"--kubeconfig=" + l.KubeconfigFile(Kwok),
		"--config=" + l.kwokStagesFile(),
		"--server-address=" + Address(p.Ports[Kwok]),
		"--manage-nodes-with-label-selector=type=kwok", // KWOK simulates the kubelet only for nodes with this label
		fmt.Sprintf("--node-lease-duration-seconds=%d", int(p.nodeLeaseTimes().leaseDuration.Seconds())),
	}
}

// nodeLeaseTimes are the duration of a Node's Lease, and the grace period after which a Node without renewals is not
// Ready. A Node renews its Lease after a quarter of the duration.
type nodeLeaseTimes struct{ leaseDuration, gracePeriod time.Duration }

// nodeLeaseTimes returns short times for failure tests, or long times for benchmarks. In a measurement, 5,000 Nodes
// with a Lease duration of 40 s cost the API server 49 s of CPU time per minute. The grace period is long enough for
// two missed renewals, and for stale caches of the controllers after an outage of the API server. A flapping Node
// leaves pods that never become ready again, because KWOK makes a pod ready only once.
func (p Plan) nodeLeaseTimes() nodeLeaseTimes {
	if p.NodeLeaseDuration > 0 {
		return nodeLeaseTimes{leaseDuration: p.NodeLeaseDuration, gracePeriod: p.NodeLeaseDuration + p.NodeLeaseDuration/4}
	}
	if p.UseLongLeases {
		return nodeLeaseTimes{leaseDuration: 240 * time.Second, gracePeriod: 300 * time.Second}
	}
	return nodeLeaseTimes{leaseDuration: 40 * time.Second, gracePeriod: time.Minute}
}
