package rollout

// MaxSentence is the longest sentence of a step.
const MaxSentence = maxSentence
