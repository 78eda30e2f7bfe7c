local metrics = {}
for name, value in redis.call('INFO', 'redis-cell'):gmatch('redis%-cell_([a-z]+_[a-z]+):(%d+)') do
    table.insert(metrics, name)
    table.insert(metrics, value)
end
return metrics
