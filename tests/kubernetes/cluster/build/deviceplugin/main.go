// Offers made-up GPUs to a kubelet, the way a vendor's device plugin offers real ones.
//
// The cards are the lines of a file, one UUID each. The file may change: the node then grows or
// shrinks. A container that was given cards finds their UUIDs in NVIDIA_VISIBLE_DEVICES.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	endpoint = "rota-cards.sock"
	interval = 200 * time.Millisecond
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	cardsFile string
	stopped   chan struct{}
}

func main() {
	resource := flag.String("resource", "nvidia.com/gpu", "name under which pods ask for a card")
	cards := flag.String("cards", "", "file with one UUID per line")
	folder := flag.String("folder", "/var/lib/kubelet/device-plugins", "where the kubelet's socket is")
	flag.Parse()
	for {
		if err := offer(*folder, *resource, *cards); err != nil {
			log.Printf("the cards are not offered: %v", err)
		}
		time.Sleep(interval)
	}
}

// offer serves and registers, until the kubelet starts anew: it then removes every plugin's socket.
func offer(folder, resource, cards string) error {
	path := filepath.Join(folder, endpoint)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	served := &plugin{cardsFile: cards, stopped: make(chan struct{})}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, served)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	defer close(served.stopped)
	if err := register(folder, resource); err != nil {
		return err
	}
	log.Printf("%s is registered", resource)
	for {
		if _, err := os.Stat(path); err != nil {
			return nil
		}
		time.Sleep(interval)
	}
}

func register(folder, resource string) error {
	connection, err := grpc.NewClient(
		"unix://"+filepath.Join(folder, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(limited, &api.RegisterRequest{
		Version:      api.Version,
		Endpoint:     endpoint,
		ResourceName: resource,
	})
	return err
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	var told []string
	for isFirst := true; ; isFirst = false {
		text, err := os.ReadFile(p.cardsFile)
		if err != nil {
			return err
		}
		cards := strings.Fields(string(text))
		if isFirst || !slices.Equal(cards, told) {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: healthy(cards)}); err != nil {
				return err
			}
			told = cards
		}
		select {
		case <-p.stopped:
			return nil
		case <-stream.Context().Done():
			return nil
		case <-time.After(interval):
		}
	}
}

func healthy(cards []string) []*api.Device {
	devices := make([]*api.Device, 0, len(cards))
	for _, card := range cards {
		devices = append(devices, &api.Device{ID: card, Health: api.Healthy})
	}
	return devices
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return answer, nil
}
