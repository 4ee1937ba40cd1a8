// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket

/// A process that runs `hhsocket serve`, and ends with this process at the latest.
struct OwnServer: Sendable {
    let endpoint: Endpoint
    private let process: ChildProcess

    /// Starts a server, and returns when it accepts connections.
    ///
    /// - Parameter format: The argument of `serve --format`.
    static func start(format: String) async throws -> OwnServer {
        guard let program = Bundle.main.executablePath else {
            throw EchoFailure("cannot start a server: the path of this program is unknown")
        }
        let process: ChildProcess
        do {
            process = try ChildProcess([
                program, "serve", "--host", "127.0.0.1", "--port", "0", "--announce", "%h:%p", "--until-eof",
                "--format", format,
            ])
        } catch {
            throw EchoFailure("cannot start a server: \(error.program): \(String(cString: strerror(error.errno)))")
        }
        guard let endpoint = Endpoint(await process.firstLine()) else {
            process.kill()
            throw EchoFailure("the server started by --self ended before it listened")
        }
        return OwnServer(endpoint: endpoint, process: process)
    }

    var pid: Int32 { self.process.pid }

    func kill() {
        self.process.kill()
    }
}
