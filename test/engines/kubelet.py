"""A stand-in for kubelet: serves Registration and calls device plugins, by PyPI's grpcio.

What is generated from the .proto is made by grpc_tools when this is imported, so nothing of the plugin's own code is used.
"""
import concurrent.futures
import contextlib
import importlib
import os
import queue
import sys

import grpc
from grpc_tools import protoc

PATIENCE = 60  # seconds until something that has to happen counts as missing


def generate(proto, folder):
    """Makes and imports the two modules of a .proto."""
    arguments = ["protoc", f"-I{os.path.dirname(proto)}", f"--python_out={folder}", f"--grpc_python_out={folder}", proto]
    if protoc.main(arguments) != 0:
        sys.exit(f"{proto} is not understood")
    sys.path.insert(0, folder)
    return importlib.import_module("device_plugin_pb2"), importlib.import_module("device_plugin_pb2_grpc")


class Watch:
    """A ListAndWatch: the answers as they come."""

    def __init__(self, plugin):
        self.plugin = plugin
        self.answers = queue.Queue()
        self.call = plugin.stub.ListAndWatch(plugin.messages.Empty())
        concurrent.futures.ThreadPoolExecutor(1).submit(self.read)

    def read(self):
        try:
            for answer in self.call:
                self.answers.put({device.ID: device.health for device in answer.devices})
        except grpc.RpcError as error:
            self.answers.put(error.code())

    def next(self):
        return self.answers.get(timeout=PATIENCE)

    def until(self, health):
        """The answer in which all devices are so; those before it are passed over."""
        while True:
            answer = self.next()
            if isinstance(answer, dict) and set(answer.values()) == set(health.split()):
                return answer


class Plugin:
    """A resource that was registered, as kubelet sees it."""

    def __init__(self, kubelet, request):
        self.messages, services = kubelet.messages, kubelet.services
        self.request, self.resource = request, request.resource_name
        self.socket = os.path.join(kubelet.folder, request.endpoint)
        self.channel = grpc.insecure_channel(f"unix:{self.socket}")
        self.stub = services.DevicePluginStub(self.channel)

    def watch(self):
        return Watch(self)

    def devices(self):
        """All of them, whatever their health."""
        watch = self.watch()
        devices = watch.next()
        watch.call.cancel()
        return sorted(devices, key=lambda i: (i.split("::")[0], int(i.split("::")[1])))

    def allocate(self, *devices):
        request = self.messages.AllocateRequest(container_requests=[{"devicesIDs": devices}])
        return self.stub.Allocate(request, timeout=PATIENCE).container_responses[0]

    def prefer(self, available, size, must=()):
        one = {"available_deviceIDs": available, "must_include_deviceIDs": must, "allocation_size": size}
        request = self.messages.PreferredAllocationRequest(container_requests=[one])
        return list(self.stub.GetPreferredAllocation(request, timeout=PATIENCE).container_responses[0].deviceIDs)

    def before_start(self, *devices):
        return self.stub.PreStartContainer(self.messages.PreStartContainerRequest(devicesIDs=devices), timeout=PATIENCE)


class Kubelet:
    """Serves Registration on FOLDER/kubelet.sock."""

    def __init__(self, folder, messages, services):
        self.folder, self.messages, self.services = folder, messages, services
        self.asked = queue.Queue()
        self.refusals = 0  # of the next registrations
        self.server = None

    def Register(self, request, context):
        if self.refusals > 0:
            self.refusals -= 1
            context.abort(grpc.StatusCode.INTERNAL, "not now: 100 % busy")
        self.asked.put(request)
        return self.messages.Empty()

    def start(self):
        """As kubelet does: first everything that is in its folder goes."""
        os.makedirs(self.folder, exist_ok=True)
        for name in os.listdir(self.folder):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, name))
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self.services.add_RegistrationServicer_to_server(self, self.server)
        self.server.add_insecure_port(f"unix:{self.folder}/kubelet.sock")
        self.server.start()

    def stop(self):
        self.server.stop(None).wait()

    def registrations(self, n):
        """The next n, by the resource's name."""
        return {plugin.resource: plugin for plugin in (Plugin(self, self.asked.get(timeout=PATIENCE)) for _ in range(n))}
