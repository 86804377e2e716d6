package component

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// kubernetesCommand returns the arguments of the multi-call binary for a component: its role and its flags.
func (p Plan) kubernetesCommand(name string) []string {
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

// APIServer returns the URL of the API server.
func (p Plan) APIServer() string { return "https://" + Address(p.Ports[APIServer]) }

func (p Plan) etcdFlags() []string {
	peer := "http://" + Address(p.Ports[etcdPeerPort])
	return []string{
		Etcd,
		"--name=devstack",
		"--data-dir=" + p.Layout().Path(Etcd),
		"--listen-client-urls=" + p.etcdURL(),
		"--advertise-client-urls=" + p.etcdURL(),
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=devstack=" + peer,
		"--unsafe-no-fsync", // data survive the end of the process, but not a crash of the computer
		"--log-level=warn",
	}
}

func (p Plan) apiServerFlags() []string {
	l := p.Layout()
	return []string{
		APIServer,
		"--etcd-servers=" + p.etcdURL(),
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(p.Ports[APIServer]),
		// The API server refuses to advertise a loopback address: give it one from the range reserved for
		// documentation, and let it write no endpoints.
		"--advertise-address=192.0.2.2",
		"--endpoint-reconciler-type=none",
		"--cert-dir=" + l.Path("pki"),
		"--token-auth-file=" + l.tokensFile(),
		"--authorization-mode=Node,RBAC",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.serviceAccountKey(),
		"--service-account-signing-key-file=" + l.serviceAccountKey(),
		"--audit-policy-file=" + l.auditPolicy(),
		"--audit-log-path=" + l.AuditLog(),
		"--audit-log-mode=batch", // in this mode, requests do not wait for the log file
		"--audit-log-batch-buffer-size=100000",
		"--audit-log-maxsize=100000", // in MB: the log never rotates, and counts of requests are complete
	}
}

func (p Plan) controllerManagerFlags() []string {
	l := p.Layout()
	return []string{
		ControllerManager,
		"--kubeconfig=" + l.Kubeconfig(ControllerManager),
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(p.Ports[ControllerManager]),
		"--cert-dir=" + l.Path("pki", ControllerManager),
		"--authentication-skip-lookup=true", // the stack has no CA of clients to look up
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + l.serviceAccountKey(),
		"--root-ca-file=" + l.APIServerCertificate(),
		"--kube-api-qps=500", // with the default of 20, it takes 8 s until each controller has its own token
		"--kube-api-burst=1000",
		"--node-monitor-period=2s",
		fmt.Sprintf("--node-monitor-grace-period=%s", p.nodeTimes().grace),
		"--controllers=" + strings.Join(enabledControllers(), ","), // a second flag --controllers adds more controllers
	}
}

// enabledControllers are the controllers that machines, pods, volumes and disruption budgets need. With fewer
// controllers, the controller manager starts faster.
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
	l := p.Layout()
	return []string{
		Scheduler,
		"--kubeconfig=" + l.Kubeconfig(Scheduler),
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(p.Ports[Scheduler]),
		"--cert-dir=" + l.Path("pki", Scheduler),
		"--authentication-skip-lookup=true",
		"--leader-elect=false",
	}
}

func (p Plan) kwokFlags() []string {
	l := p.Layout()
	return []string{
		Kwok,
		"--kubeconfig=" + l.Kubeconfig(Kwok),
		"--config=" + l.stagesFile(),
		"--server-address=" + Address(p.Ports[Kwok]),
		"--manage-nodes-with-label-selector=type=kwok", // a node without the label has no simulated kubelet
		fmt.Sprintf("--node-lease-duration-seconds=%d", int(p.nodeTimes().lease.Seconds())),
	}
}

// nodeTimes are the duration of a node's lease, and the grace period after which a node without renewals is not Ready.
// A node renews its lease after a quarter of the duration.
type nodeTimes struct{ lease, grace time.Duration }

// nodeTimes returns short times for tests of failures, or long ones for benchmarks. Measured: 5,000 nodes with a lease
// of 40 s take 49 s of CPU a minute in the API server alone. The grace period allows a node to miss two renewals, and
// the controllers to be out of date for a while after the API server was away: a node that flaps leaves pods that never
// become ready again, because kwok makes a pod ready only once.
func (p Plan) nodeTimes() nodeTimes {
	if p.NodeLease > 0 {
		return nodeTimes{lease: p.NodeLease, grace: p.NodeLease + p.NodeLease/4}
	}
	if p.Quiet {
		return nodeTimes{lease: 240 * time.Second, grace: 300 * time.Second}
	}
	return nodeTimes{lease: 40 * time.Second, grace: time.Minute}
}
