package kubernetes

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/faas-infer/faas-infer/command/kubernetes/nodeagent"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device"
)

// instanceUser is the user of the templates' images.
const instanceUser = 65532

// NewNodeCommand returns "faas-infer-kubernetes node".
func NewNodeCommand() *cobra.Command {
	var kubeconfig string
	a := &nodeagent.Agent{
		Node: os.Getenv("NODE_NAME"), Visible: os.Getenv(gpu.VisibleEnv), Share: true, Every: 30 * time.Second,
		MPS: device.MPSOptions{Program: device.MPSProgram, Directory: "/run/faas-infer/mps"}, User: instanceUser,
	}
	c := &cobra.Command{
		Use:   "node",
		Short: "Publish this node's GPUs and share them through CUDA MPS",
		Long: `node runs on every node with GPUs, usually as a DaemonSet. It lists the GPUs with
NVIDIA's driver and runs a control daemon of CUDA's MPS for each, through which instances
get shares of it. MIG instances go to one instance each. It publishes both in the node's annotation ` + gpu.InventoryAnnotation + `,
which the provider uses for placement. If NVIDIA's device plugin offers the same GPUs,
node shares none and says so. With --device-plugin, it shares those that the plugin gave
to its own container, which asks for nvidia.com/gpu. --devices names GPUs that the plugin
does not have.

When node ends, the MPS daemons end, and so do the processes that use them.`,
		Example: `  faas-infer-kubernetes node --name "$NODE_NAME"
  faas-infer-kubernetes node --name gpu-1 --kubeconfig ~/.kube/config --devices 2,3`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := a.Check(); err != nil {
				return err
			}
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("--kubeconfig: %w", err)
			}
			config.QPS = -1
			if a.Client, err = kubernetes.NewForConfig(config); err != nil {
				return err
			}
			library := nvml.New()
			a.Read = func() (gpu.Inventory, error) { return device.Read(library) }
			a.Watch = func(ctx context.Context, o device.WatchOptions) error { return device.Watch(ctx, library, o) }
			a.Log = zerolog.New(cmd.ErrOrStderr()).With().Timestamp().Logger()
			return a.Run(cmd.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&a.Node, "name", a.Node, "name of this node (default: $NODE_NAME)")
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's service account)")
	f.StringSliceVar(&a.Devices, "devices", nil, "indexes or UUIDs of the GPUs to share (default: all)")
	f.BoolVar(&a.Plugin, "device-plugin", false, "share the GPUs that NVIDIA's device plugin gave to this container, and no others")
	f.StringVar(&a.RuntimeClass, "runtime-class", "", "RuntimeClass with which instances reach their GPU (default: the node's default runtime)")
	f.BoolVar(&a.Share, "share", a.Share, "share GPUs through MPS; if false, they are only published")
	f.StringVar(&a.MPS.Directory, "directory", a.MPS.Directory, "directory on the node for the pipes and logs of MPS daemons")
	f.StringVar(&a.SharedMemory, "shared-memory", "", "directory on the node that is /dev/shm here and in instances (default: /dev/shm itself)")
	f.IntVar(&a.User, "instance-user", a.User, "user as which instances with shares run: each daemon starts its server for it ahead (0: for nobody)")
	f.StringVar(&a.MPS.Program, "mps-control", a.MPS.Program, "the MPS control program")
	f.DurationVar(&a.Every, "every", a.Every, "how often to check the driver and the MPS daemons")
	return c
}
