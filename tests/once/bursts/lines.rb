# Reads lines such as "200 open", makes that many calls at once, and prints a line of their statuses.

require "./redis_rb"

pool = Pool.new
$stdout.sync = true
while (line = gets)
  calls, fail = line.split
  threads = Array.new(calls.to_i) do
    Thread.new { Thread.stop; throttle(pool, fail, 2, 1, 60, fail: fail)[0] }
  end
  Thread.pass until threads.all?(&:stop?)
  puts threads.each(&:run).map(&:value).join(" ")
end
