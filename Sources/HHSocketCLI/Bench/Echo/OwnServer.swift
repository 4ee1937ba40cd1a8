// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket

/// A process of this program that serves, and ends with this process at the latest.
struct OwnServer: Sendable {
    let endpoint: Endpoint
    private let process: ChildProcess

    /// Starts a server, and returns when it accepts connections.
    ///
    /// - Parameters:
    ///   - api: The API by which it is called.
    ///   - format: The argument of `serve --format`.
    static func start(for api: EchoParameters.API, format: String) async throws -> OwnServer {
        guard let program = Bundle.main.executablePath else {
            throw EchoFailure("cannot start a server: the path of this program is unknown")
        }
        let command =
            switch api {
            case .message: ["ws-serve", "--announce", "ws://%h:%p/"]
            case .line: ["lines-serve", "--announce", "%h:%p"]
            default: ["serve", "--announce", "%h:%p", "--format", format]
            }
        let process: ChildProcess
        do {
            process = try ChildProcess(
                [program] + command + ["--host", "127.0.0.1", "--port", "0", "--until-eof"]
            )
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
