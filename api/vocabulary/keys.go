package vocabulary

// Keys on a Machine and its Node that the decisions compare.
const (
	LabelMachineName                     = "node.gardener.cloud/machine-name"
	AnnotationLastAppliedTemplate        = "node.machine.sapcloud.io/last-applied-anno-labels-taints"
	AnnotationLastAppliedVirtualCapacity = "node.machine.sapcloud.io/last-applied-virtual-capacity"
	AnnotationNotManaged                 = "node.machine.sapcloud.io/not-managed-by-mcm"
	AnnotationPreserve                   = "node.machine.sapcloud.io/preserve"
	AnnotationLastAppliedPreserve        = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	AnnotationScaleDownDisabled          = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	AnnotationScaleDownDisabledByMCM     = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
	TaintCriticalComponentsNotReady      = "node.gardener.cloud/critical-components-not-ready"
)

// ValueLowerTrue is the value of both annotations for the cluster autoscaler.
const ValueLowerTrue = "true"

// Values of AnnotationPreserve, on a Machine or its Node.
const (
	PreserveNow        = "now"            // preserve the machine from now on
	PreserveWhenFailed = "when-failed"    // preserve it if it fails
	PreserveAuto       = "auto-preserved" // its set preserves it because it failed
	PreserveFalse      = "false"          // do not preserve it, and let no set preserve it
)

// Priorities of machines, as their annotation holds them. Source: MCM.
const (
	PriorityDefault = 3 // without the annotation
	PriorityChosen  = 1 // the cluster autoscaler chose the machine
)
