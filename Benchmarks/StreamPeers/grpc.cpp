// Server streaming of gRPC C++, by the given API: synchronous or callback.
//
//     grpc serve sync|callback PORT
//     grpc sync|callback PORT BODY WARM_UP SECONDS SERVER_PID
#include <grpcpp/grpcpp.h>

#include "grpc.grpc.pb.h"
#include "peer.h"

static grpc::ChannelArguments unlimited() {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    return arguments;
}

class Synchronous final : public peer::Items::Service {
    grpc::Status Stream(grpc::ServerContext *, const peer::Request *request,
                        grpc::ServerWriter<peer::Item> *writer) override {
        peer::Item item;
        item.set_body(std::string(request->size(), 'x'));
        while (writer->Write(item)) {}
        return grpc::Status::OK;
    }
};

class Callback final : public peer::Items::CallbackService {
    class Writer final : public grpc::ServerWriteReactor<peer::Item> {
    public:
        explicit Writer(size_t size) {
            this->item.set_body(std::string(size, 'x'));
            this->StartWrite(&this->item);
        }
        void OnWriteDone(bool ok) override {
            if (ok) this->StartWrite(&this->item);
            else this->Finish(grpc::Status::OK);
        }
        void OnDone() override { delete this; }

    private:
        peer::Item item;
    };
    grpc::ServerWriteReactor<peer::Item> *Stream(grpc::CallbackServerContext *, const peer::Request *request) override {
        return new Writer(request->size());
    }
};

class Reader final : public grpc::ClientReadReactor<peer::Item> {
public:
    Reader(peer::Items::Stub *stub, peer::Request *request, peer_run *run) : run(run) {
        stub->async()->Stream(&this->context, request, this);
        this->StartRead(&this->item);
        this->StartCall();
    }
    void OnReadDone(bool ok) override {
        if (!ok) _exit(1);
        if (!peer_item(this->run, this->item.body().size())) _exit(0);
        this->StartRead(&this->item);
    }

private:
    grpc::ClientContext context;
    peer::Item item;
    peer_run *run;
};

template <class Service> static int serve(int port) {
    Service service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    auto server = builder.BuildAndStart();
    if (!server) return 1;
    peer_ready(port);
    server->Wait();
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "serve")) {
        int port = atoi(argv[3]);
        return !strcmp(argv[2], "sync") ? serve<Synchronous>(port) : serve<Callback>(port);
    }
    if (argc < 2) return 2;
    bool is_synchronous = !strcmp(argv[1], "sync");
    peer_run run = peer_parse(argc - 1, argv + 1);
    auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(run.port), grpc::InsecureChannelCredentials(),
                                             unlimited());
    auto stub = peer::Items::NewStub(channel);
    peer::Request request;
    request.set_size((uint32_t)run.body);
    if (is_synchronous) {
        grpc::ClientContext context;
        peer::Item item;
        auto reader = stub->Stream(&context, request);
        while (reader->Read(&item)) {
            if (!peer_item(&run, item.body().size())) _exit(0);
        }
        return 1;
    }
    Reader reader(stub.get(), &request, &run);
    for (;;) pause();
}
