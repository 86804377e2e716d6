package vocabulary

// Labels, annotations and taints of a Machine and its Node that the packages of decide read.
const (
	// label of a Node: the name of its Machine
	LabelMachineName = "node.gardener.cloud/machine-name"
	// annotation of a Node: the UID of its Machine, written after the ownership was proven; see docs/ownership.md
	AnnotationMachineUID = "node.machine.sapcloud.io/machine-uid"
	// annotation of a Node: the annotations, labels and taints that Millwright last wrote from the machine's node
	// template
	AnnotationLastAppliedTemplate = "node.machine.sapcloud.io/last-applied-anno-labels-taints"
	// annotation of a Node: the virtual capacity that Millwright last wrote from the class
	AnnotationLastAppliedVirtualCapacity = "node.machine.sapcloud.io/last-applied-virtual-capacity"
	// annotation of a Node that no Machine claims
	AnnotationNotManaged = "node.machine.sapcloud.io/not-managed-by-mcm"
	// annotation of a Machine or its Node: whether the machine is kept for inspection
	AnnotationPreserve = "node.machine.sapcloud.io/preserve"
	// label of a Machine: delete the machine without waiting for its pods
	LabelForceDeletion = "force-deletion"
	// annotation of a Machine: the last applied value of its Node's annotation preserve
	AnnotationLastAppliedPreserve = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	// annotation of a Node: the cluster autoscaler must not remove the node
	AnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// annotation of a Node: a rollout or a preservation has written scale-down-disabled
	AnnotationScaleDownDisabledByMCM = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
	// taint of a Node: its machine stays Pending while the taint exists
	TaintCriticalComponentsNotReady = "node.gardener.cloud/critical-components-not-ready"
	// taint of a Node that the cloud controller manager has not initialised yet; its machine stays Pending
	TaintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// Labels and annotations of MachineSets and MachineDeployments in the commands that `millwright explain` prints.
const (
	// label of a MachineSet or MachineDeployment that creates no machine
	LabelFreeze = "freeze"
	// annotation of a MachineSet that creates and deletes no machine
	AnnotationPaused = "cluster.x-k8s.io/paused"
	// AnnotationInPlaceUpdates: see v1alpha1.AnnotationInPlaceUpdates.
	AnnotationInPlaceUpdates = "rollout.machine.sapcloud.io/in-place-updates"
	// annotation of a MachineSet: names of the preflight checks that the set skips
	AnnotationSkipPreflightChecks = "machineset.cluster.x-k8s.io/skip-preflight-checks"
	// annotation of a Machine: its set replaces the machine
	AnnotationRemediateMachine = "cluster.x-k8s.io/remediate-machine"
)

// AnnotationAllowedClassNamespaces is the annotation of a Secret that lists the namespaces whose MachineClasses may use
// the Secret.
const AnnotationAllowedClassNamespaces = "machine.sapcloud.io/allowed-class-namespaces"

// ValueScaleDownDisabled is the value of both scale-down-disabled annotations.
const ValueScaleDownDisabled = "true"

// Values of AnnotationPreserve, on a Machine or its Node.
const (
	ValuePreserveNow        = "now"            // preserve the machine from now on
	ValuePreserveWhenFailed = "when-failed"    // preserve the machine if it fails
	ValuePreserveAuto       = "auto-preserved" // the set preserves the machine, because the machine failed
	ValuePreserveFalse      = "false"          // do not preserve the machine, and let no set preserve it
)

// Priorities of machines, as values of the annotation machinepriority.machine.sapcloud.io. Source: MCM.
const (
	PriorityDefault            = 3 // priority of a machine without the annotation
	PriorityChosenByAutoscaler = 1 // priority of a machine that the cluster autoscaler has chosen
)
