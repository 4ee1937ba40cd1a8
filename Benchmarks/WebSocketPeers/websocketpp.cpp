// An echo server on websocketpp and Asio, for Benchmarks/Scripts/bench-websocket: `websocketpp PORT`. Prints READY when it listens.
//
// One thread, so the configuration has no locks; no logs and no compression; a read takes as much as a large message.

#include <cstdio>
#include <cstdlib>

#include <websocketpp/concurrency/none.hpp>
#include <websocketpp/config/asio_no_tls.hpp>
#include <websocketpp/logger/stub.hpp>
#include <websocketpp/server.hpp>

namespace {

struct Configuration : websocketpp::config::core {
    typedef Configuration type;
    typedef websocketpp::concurrency::none concurrency_type;
    typedef websocketpp::config::core::request_type request_type;
    typedef websocketpp::config::core::response_type response_type;
    typedef websocketpp::config::core::message_type message_type;
    typedef websocketpp::config::core::con_msg_manager_type con_msg_manager_type;
    typedef websocketpp::config::core::endpoint_msg_manager_type endpoint_msg_manager_type;
    typedef websocketpp::log::stub alog_type;
    typedef websocketpp::log::stub elog_type;
    typedef websocketpp::config::core::rng_type rng_type;

    struct transport_config : websocketpp::config::core::transport_config {
        typedef websocketpp::concurrency::none concurrency_type;
        typedef websocketpp::log::stub alog_type;
        typedef websocketpp::log::stub elog_type;
        typedef websocketpp::config::core::request_type request_type;
        typedef websocketpp::config::core::response_type response_type;
        typedef websocketpp::transport::asio::basic_socket::endpoint socket_type;
        static bool const enable_multithreading = false;
    };
    typedef websocketpp::transport::asio::endpoint<transport_config> transport_type;

    static bool const enable_multithreading = false;
    static size_t const connection_read_buffer_size = 128 << 10;
};

typedef websocketpp::server<Configuration> Server;

}  // namespace

int main(int count, char **arguments) {
    if (count != 2) return 2;
    Server server;
    server.init_asio();
    server.set_reuse_addr(true);
    server.set_tcp_post_init_handler([&server](websocketpp::connection_hdl connection) {
        server.get_con_from_hdl(connection)->get_raw_socket().set_option(websocketpp::lib::asio::ip::tcp::no_delay(true));
    });
    server.set_message_handler([&server](websocketpp::connection_hdl connection, Server::message_ptr message) {
        websocketpp::lib::error_code error;
        server.send(connection, message->get_payload(), message->get_opcode(), error);
    });
    server.listen(websocketpp::lib::asio::ip::tcp::v4(), static_cast<uint16_t>(std::atoi(arguments[1])));
    server.start_accept();
    std::puts("READY");
    std::fflush(stdout);
    server.run();
}
