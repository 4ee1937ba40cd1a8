import HHSocketRPC

/// A progress bar on a terminal, for the part of a task's body that was sent.
struct ProgressBar {
    private static let width = 40
    private let drawing: Task<Void, Never>
    private let draw: @Sendable () -> Void

    /// Starts drawing; nil if stderr is not a terminal.
    static func following(_ task: SocketTask, label: String) -> ProgressBar? {
        guard StandardError.isTerminal else { return nil }
        let draw = { @Sendable in self.draw(label, task.countOfBytesSent, of: task.countOfBytesExpectedToSend) }
        let drawing = Task {
            while !Task.isCancelled {
                draw()
                try? await Task.sleep(for: .milliseconds(20))
            }
        }
        return ProgressBar(drawing: drawing, draw: draw)
    }

    /// Draws the last state and ends the line.
    func finish() async {
        self.drawing.cancel()
        await self.drawing.value
        self.draw()
        StandardError.write("\n")
    }

    private static func draw(_ label: String, _ done: Int, of total: Int) {
        guard total > 0 else { return }
        let filled = min(self.width, done * self.width / total)
        let bar = String(repeating: "#", count: filled) + String(repeating: ".", count: self.width - filled)
        StandardError.write("\r\(label) [\(bar)] \(done * 100 / total) %")
    }
}
