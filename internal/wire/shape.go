package wire

// The shapes of messages, of type confidential.Shape. The bytes of a message do not name its type.
// Recordings contain the numbers.
const (
	// ShapeWhole is a message that is sealed as a whole.
	ShapeWhole = iota
	// ShapeUnnamed is a message that is sealed as a whole since the fields of a confidential.Rule
	// have no names in it.
	ShapeUnnamed
	// ShapeOther is a message in which only texts are examined, such as an object without
	// environment variables.
	ShapeOther
	// ShapeSecretObject is core/v1 Secret, ShapeTokenReview and ShapeTokenRequest those of
	// authentication/v1.
	ShapeSecretObject
	ShapeTokenReview
	ShapeTokenRequest
	// ShapePod is core/v1 Pod, and ShapePodTemplate and ShapeReplicationController of core/v1.
	ShapePod
	ShapePodTemplate
	ShapeReplicationController
	// ShapeDeployment is Deployment, ReplicaSet or StatefulSet of apps/v1.
	ShapeDeployment
	// ShapeDaemonSet is that of apps/v1, ShapeJob and ShapeCronJob are those of batch/v1.
	ShapeDaemonSet
	ShapeJob
	ShapeCronJob
	// ShapeText is a text alone, such as the value of an annotation.
	ShapeText
	// ShapeHookRequest is kubewasm.hooks.v1.Request.
	ShapeHookRequest
)

// AnyGroup stands for the group of a kind that is not known.
const AnyGroup = "*"
